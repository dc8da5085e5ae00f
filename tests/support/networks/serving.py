"""The shared part of all stand-ins: an HTTP server, its files, and a record of its requests."""

import itertools
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl, urlsplit

from tests.support.data.media_samples import Sample

JSON = "application/json"
_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as it arrived; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A webhook to send."""

    body: bytes
    url: str
    at: int


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A response."""

    body: bytes = b""
    status: int = 200
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def say(document: object, status: int = 200) -> Reply:
    """Return a JSON response."""
    return Reply(body=json.dumps(document).encode(), status=status)


def give(sample: Sample) -> Reply:
    """Return a file as a response."""
    return Reply(body=sample.content, media_type=sample.media_type)


class StandIn(ABC):
    """The stand-in for one network."""

    name: ClassVar[str]
    content_type: ClassVar[str] = JSON
    sends_files_singly: ClassVar[bool] = False
    """Whether a message of the network has one file at the most."""

    def __init__(self) -> None:
        self.kept: dict[str, Sample] = {}
        self.asked: list[Asked] = []
        self.answers: dict[str, Reply] = {}
        """Answers that a test puts in the place of the network's, by path."""
        self.url: str | None = None
        self._servers: list[ThreadingHTTPServer] = []

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Return the settings that a distribution needs."""

    @abstractmethod
    def new_id(self, number: int) -> str:
        """Return a file id in the network's format."""

    @abstractmethod
    def message(self, *files: str, message: str = "1") -> bytes:
        """Return the body of a webhook for a message with these files."""

    @abstractmethod
    def says(self, text: str, number: str) -> bytes:
        """Return the body of a webhook in which the user Ada sends a text, as the message with this number."""

    @abstractmethod
    def signature(self, sent: Sent) -> dict[str, str]:
        """Return the headers that authenticate a webhook as the network's."""

    @abstractmethod
    def reply(self, asked: Asked) -> Reply:
        """Respond as the network's API and file server do."""

    def sign(self, body: bytes, *, url: str = "", at: float | None = None) -> dict[str, str]:
        """Return the headers with which the network sends a body to a URL, now or at another time."""
        sent = Sent(body=body, url=url, at=int(time.time() if at is None else at))
        return {"Content-Type": self.content_type, **self.signature(sent)}

    def keep(self, sample: Sample) -> str:
        """Store a file, and return its id."""
        file_id = self.new_id(next(_numbers))
        self.kept[file_id] = sample
        return file_id

    def paths(self) -> list[str]:
        """Return the requested paths, in order."""
        return [asked.path for asked in self.asked]

    def __enter__(self) -> Self:
        self.url = self.listen(self.reply)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def listen(self, reply: Callable[[Asked], Reply]) -> str:
        """Serve on a free port; yield the URL."""
        server = _Server(("127.0.0.1", 0), _Handler)
        server.answer = lambda asked: self._remember(asked, reply)
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    def _remember(self, asked: Asked, reply: Callable[[Asked], Reply]) -> Reply:
        self.asked.append(asked)
        return self.answers.get(asked.path) or reply(asked)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    answer: Callable[[Asked], Reply]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = Asked(
            method=self.command,
            path=parts.path,
            query=dict(parse_qsl(parts.query)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(int(self.headers.get("Content-Length", 0))),
        )
        reply = self.server.answer(asked)
        with suppress(OSError):
            self.send_response(reply.status)
            headers = {"Content-Type": reply.media_type, "Content-Length": str(len(reply.body))}
            for name, value in {**headers, **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

    do_POST = do_GET  # noqa: N815 (the base class calls it so)

    def log_message(self, *_: object) -> None:
        """Log nothing."""
