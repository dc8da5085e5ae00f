"""A stand-in for the service with scripted responses, which records the SDK's requests."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

TOKEN_PATH = "/oauth/token"


@dataclass(frozen=True)
class Request:
    """A received request; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """A response; with `cut_at` the connection is closed after this number of bytes of the body."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_at: int | None = None

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class NoAnswer(Exception):
    """Closes the connection without a response."""


Script = Callable[[Request], Answer]


class ScriptedService:
    """Responds as scripted, exchanges any client secret, and records all requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.script: Script = lambda _: Answer(body=file_body())
        self.exchange: Script = lambda _: self.new_token()
        self._lock = threading.Lock()
        self._tokens = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            # HTTP/1.0 would close each connection, and the pool of the client would not be tested.
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                service.serve(self)

            def log_message(self, *arguments: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *arguments: object) -> None:
                """Ignore clients that disconnected."""

        # The base class looks for a method of this name for each HTTP method.
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.handle_any)
        self._server = Server(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def secret(self) -> dict[str, Any]:
        """Return the arguments of a client with a client secret."""
        return {"base_url": self.url, "client_id": "client-1", "client_secret": "svs_secret"}

    @property
    def key(self) -> dict[str, Any]:
        """Return the arguments of a client with an API key."""
        return {"base_url": self.url, "api_key": "svk_key"}

    def counted(self) -> Counter[str]:
        """Return the number of requests by path."""
        return Counter(request.path for request in self.requests)

    def asked(self) -> list[Request]:
        """Return all requests except token exchanges."""
        return [request for request in self.requests if request.path != TOKEN_PATH]

    def new_token(self, expires_in: int = 900) -> Answer:
        with self._lock:
            self._tokens += 1
            return Answer(body={"access_token": f"token-{self._tokens}", "expires_in": expires_in})

    @contextmanager
    def running(self) -> Iterator[ScriptedService]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        target = urlsplit(handler.path)
        request = Request(
            method=handler.command,
            path=target.path,
            query={name: values[0] for name, values in parse_qs(target.query).items()},
            headers={name.lower(): value for name, value in handler.headers.items()},
            body=handler.rfile.read(int(handler.headers.get("Content-Length") or 0)),
        )
        self.requests.append(request)
        try:
            answer = self.exchange(request) if request.path == TOKEN_PATH else self.script(request)
        except NoAnswer:
            handler.close_connection = True
            return
        content = answer.content
        handler.send_response(answer.status)
        headers = {"Content-Length": str(len(content)), "X-Request-Id": "request-1", **answer.headers}
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content if answer.cut_at is None else content[: answer.cut_at])
        # The length in the header is that of the whole body, so the client sees an incomplete response.
        handler.close_connection = answer.cut_at is not None


def in_turn(*answers: Answer | type[NoAnswer]) -> Script:
    """Return a handler that sends these responses in order, and then repeats the last one."""
    rest = list(answers)

    def answer(request: Request) -> Answer:
        given = rest.pop(0) if len(rest) > 1 else rest[0]
        if isinstance(given, Answer):
            return given
        raise given

    return answer


def problem(status: int, code: str, **headers: str) -> Answer:
    """Return an error response of the service."""
    return Answer(
        status=status,
        body={"code": code, "detail": "No.", "status": status, "requestId": "request-1"},
        headers={"Content-Type": "application/problem+json", **headers},
    )


def file_body(**changes: Any) -> dict[str, Any]:
    """Return the JSON of a file."""
    return {
        "id": str(uuid4()),
        "versionId": str(uuid4()),
        "revision": 1,
        "organizationId": str(uuid4()),
        "purpose": "AgentArtifact",
        "owner": {"kind": "DaemonIdentity", "id": str(uuid4())},
        "availability": "Available",
        "metadata": metadata_body(),
        "retentionRenewalSupported": True,
        "canRenewRetention": True,
        "addedLater": {"by": "a newer service"},
        **changes,
    }


def metadata_body(sha256: str = "0" * 64) -> dict[str, Any]:
    """Return the JSON of a version's metadata."""
    return {
        "fileName": "a.txt",
        "mediaType": "text/plain",
        "byteSize": 1,
        "contentSha256": sha256,
        "createdAt": "2026-11-22T10:00:00.12Z",
        "retentionExpiresAt": None,
    }


def upload_body(content: bytes) -> dict[str, Any]:
    """Return the JSON of a stored upload."""
    from hashlib import sha256

    described = {"url": "http://files/1/content", "replayed": False}
    return file_body(metadata=metadata_body(sha256(content).hexdigest())) | described


def link_body(url: str) -> dict[str, Any]:
    """Return the JSON of a read link."""
    return {
        "id": str(uuid4()),
        "grantId": str(uuid4()),
        "versionId": str(uuid4()),
        "url": url,
        "accessExpiresAt": "2026-11-22T10:00:00Z",
        "retentionExpiresAt": None,
    }
