"""What all stand-ins have in common: a real HTTP server, the files it keeps, and a memory of what it was asked."""

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
    """One request as it arrived; names of headers in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A webhook on its way."""

    body: bytes
    url: str
    at: int


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What is answered."""

    body: bytes = b""
    status: int = 200
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def say(document: object, status: int = 200) -> Reply:
    """Answer with JSON."""
    return Reply(body=json.dumps(document).encode(), status=status)


def give(sample: Sample) -> Reply:
    """Answer with a file."""
    return Reply(body=sample.content, media_type=sample.media_type)


class StandIn(ABC):
    """One network."""

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
        """What a distribution has to be given."""

    @abstractmethod
    def new_id(self, number: int) -> str:
        """Name a file as the network does."""

    @abstractmethod
    def message(self, *files: str, message: str = "1") -> bytes:
        """Write a webhook that tells of a message with these files."""

    @abstractmethod
    def says(self, text: str, number: str) -> bytes:
        """Write a webhook in which Ada says something, in a message of this number."""

    @abstractmethod
    def signature(self, sent: Sent) -> dict[str, str]:
        """Give the headers that prove that the network sent this."""

    @abstractmethod
    def reply(self, asked: Asked) -> Reply:
        """Answer as the network's API and file server do."""

    def sign(self, body: bytes, *, url: str = "", at: float | None = None) -> dict[str, str]:
        """Give the headers with which the network sends a body to an address, now or at another time."""
        sent = Sent(body=body, url=url, at=int(time.time() if at is None else at))
        return {"Content-Type": self.content_type, **self.signature(sent)}

    def keep(self, sample: Sample) -> str:
        """Take a file in; give its id."""
        file_id = self.new_id(next(_numbers))
        self.kept[file_id] = sample
        return file_id

    def paths(self) -> list[str]:
        """List what was asked for, in order."""
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
        """Serve on a port of its own; give the address."""
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
        """Clients may hang up."""


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
        """Say nothing."""
