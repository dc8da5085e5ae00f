"""A fake OpenAI-compatible upstream: fast, scriptable for each request, with its own usage records.

It records for each call what it generated and what it reported, independently of the gateway, and credits are
reconciled against these records. In a test: `with FakeUpstream() as upstream:`. As a process, for benchmarks and fault
runs: `python -m tests.support.models.upstreams --port 9000`. The process returns its records at `GET /consumption` and
accepts a default script by `PUT /script`. A request's own script is in its last user message (see
`upstream_scripts.DIRECTIVE`).
"""

import argparse
import asyncio
import json
import socket
import ssl
import struct
import sys
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

from shared.models.providers.tcp_info import acknowledged_bytes
from tests.support.models.upstream_scripts import Script, Written, answer, script_from, script_in
from tests.support.servers.local_servers import ADDRESS

REMEMBERED_REQUESTS = 1000
_RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True, kw_only=True)
class Served:
    """The record of one call; `call` is the gateway's id for it, if it sent one."""

    call: str | None
    model: str
    path: str
    prompt_tokens: int
    status: int = 200
    completion_tokens: int = 0
    is_reported: bool = False
    ended: str = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class FakeUpstream:
    """The server, in a thread of its own."""

    def __init__(
        self, script: Script | None = None, *, port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        """Use this script for requests that bring none."""
        self._tls = tls
        self.script = script or Script()
        self.scripts: deque[Script] = deque()
        """Scripts for the next requests, first come first served, before the standing one."""
        self.served: list[Served] = []
        self.received: deque[Received] = deque(maxlen=REMEMBERED_REQUESTS)
        self.connections = 0
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._open: set[_Connection] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-upstream", daemon=True)

    def __enter__(self) -> Self:
        """Start listening."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all connections and stop."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    @property
    def base_url(self) -> str:
        """Return the base URL."""
        return f"{'https' if self._tls else 'http'}://{ADDRESS}:{self._port}/v1"

    def wait_for_end_of(self, calls: int, *, seconds: float = 60.0) -> list[Served]:
        """Wait until this many calls have ended, with or without success, and return their records."""
        done = threading.Event()
        for _ in range(int(seconds / 0.01)):
            ended = [line for line in self.served if line.ended != "running"]
            if len(ended) >= calls:
                return ended
            done.wait(0.01)
        raise AssertionError(f"{calls} calls did not end: {self.served}")

    def totals(self) -> dict[str, int]:
        """Return the sums of all records."""
        return {
            "calls": len(self.served),
            "prompt_tokens": sum(line.prompt_tokens for line in self.served),
            "completion_tokens": sum(line.completion_tokens for line in self.served),
            "reported_prompt_tokens": sum(line.prompt_tokens for line in self.served if line.is_reported),
            "reported_completion_tokens": sum(
                line.completion_tokens for line in self.served if line.is_reported
            ),
        }

    def script_for(self, body: dict[str, Any]) -> Script:
        """Return the script of a request."""
        return script_in(body) or (self.scripts.popleft() if self.scripts else self.script)

    @property
    def is_connected(self) -> bool:
        """Return whether a connection is open."""
        return bool(self._open)

    def close_connections(self) -> None:
        """Close all connections, as servers do with idle ones."""
        for connection in list(self._open):
            self._loop.call_soon_threadsafe(connection.abort)

    async def _listen(self) -> None:
        server = await self._loop.create_server(
            lambda: _Connection(self), ADDRESS, self._port, backlog=512, ssl=self._tls
        )
        self._server = server
        self._port = server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)
        await self._server.wait_closed()


class _Connection(asyncio.Protocol):
    """One connection, which serves one request at a time."""

    def __init__(self, upstream: FakeUpstream) -> None:
        self._upstream = upstream
        self._received = b""
        self._answering: asyncio.Task[None] | None = None
        self._line: Served | None = None
        self._written_bytes = 0
        self._reported: tuple[Served, int] | None = None
        """The last call that was reported on, and how much had been written by then."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._upstream._open.add(self)
        self._upstream.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio calls it so)
        self._upstream._open.discard(self)
        if self._answering is not None:
            self._answering.cancel()
        if self._line is not None and self._line.ended == "running":
            self._line.ended = "client left"
        self._take_back_what_arrived_nowhere()

    def abort(self) -> None:
        self._reported = None
        self._transport.abort()

    def close(self) -> None:
        """Close the connection after sending what is buffered."""
        self._reported = None
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._next()

    def _next(self) -> None:
        while self._answering is None:
            head, separator, rest = self._received.partition(b"\r\n\r\n")
            if not separator:
                return
            start, *lines = head.decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            length = int(headers.get("content-length", 0))
            if len(rest) < length:
                return
            self._received = rest[length:]
            method, path, _ = start.split(" ", 2)
            self._handle(Received(method=method, path=path, headers=headers, body=_parsed(rest[:length])))

    def _handle(self, request: Received) -> None:
        upstream = self._upstream
        if request.method != "POST":
            self._send(_document(self._administered(request)))
            return
        upstream.received.append(request)
        script = upstream.script_for(request.body)
        line = Served(
            call=request.headers.get("x-client-request-id"),
            model=str(request.body.get("model")),
            path=request.path,
            prompt_tokens=script.prompt_tokens if script.status == 200 and script.body is None else 0,
            status=script.status,
        )
        upstream.served.append(line)
        is_stream = bool(request.body.get("stream"))
        if script.is_plain:
            self._answer_at_once(script, request.path, line, is_stream=is_stream)
        else:
            self._line = line
            pieces = answer(script, request.path, is_stream=is_stream)
            self._answering = upstream._loop.create_task(self._answer_slowly(script, pieces, line))

    def _answer_at_once(self, script: Script, path: str, line: Served, *, is_stream: bool) -> None:
        content, tokens, reports = _whole(_Hashable(script), path, is_stream)
        self._send(content)
        line.completion_tokens = tokens
        if reports:
            self._note_report(line)
        line.ended = "answered" if is_stream or script.halts_at is None else "broken"
        if script.framing == "close" or script.raw is not None:
            self.close()

    async def _answer_slowly(self, script: Script, pieces: Iterator[Written], line: Served) -> None:
        await asyncio.sleep(script.wait_seconds)
        sent = 0
        for written in pieces:
            if written.tokens:
                await asyncio.sleep(script.delay_seconds * written.tokens)
            await self._write(script, written.content)
            sent += written.tokens
            line.completion_tokens = sent
            if written.reports:
                self._note_report(line)
            if sent == script.halts_at and (written.tokens or (sent == 0 and b'"role"' in written.content)):
                line.ended = "broken"
                if not written.is_complete:
                    await self._halt(script)
                    return
        if line.ended == "running":
            line.ended = "answered"
        self._answering = None
        if script.framing == "close":
            self.close()
        else:
            self._next()

    def _send(self, content: bytes) -> None:
        self._written_bytes += len(content)
        self._transport.write(content)

    def _note_report(self, line: Served) -> None:
        line.is_reported = True
        self._reported = line, self._written_bytes

    def _take_back_what_arrived_nowhere(self) -> None:
        """Remove a report from the record if the client had disconnected: its host has not received it."""
        if self._reported is not None:
            line, written_bytes = self._reported
            taken_bytes = acknowledged_bytes(self._transport.get_extra_info("socket")) or 0
            line.is_reported = taken_bytes >= written_bytes

    async def _write(self, script: Script, content: bytes) -> None:
        if not script.drip_bytes:
            self._send(content)
            return
        for start in range(0, len(content), script.drip_bytes):
            self._send(content[start : start + script.drip_bytes])
            await asyncio.sleep(script.drip_seconds)

    async def _halt(self, script: Script) -> None:
        if script.halts_at == script.reset_after:
            await asyncio.sleep(0.05)  # Let the client read earlier data before the reset.
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()
        elif script.halts_at == script.close_after:
            self.close()
        else:
            await asyncio.sleep(3600)

    def _administered(self, request: Received) -> object:
        upstream = self._upstream
        match request.method, request.path:
            case "GET", "/consumption":
                return {"totals": upstream.totals(), "calls": [asdict(line) for line in upstream.served]}
            case "DELETE", "/consumption":
                upstream.served.clear()
            case "PUT", "/script":
                upstream.script = script_from(request.body)
        return {}


class _Hashable:
    """A hashable wrapper: a cached response is found by a script seen before."""

    __slots__ = ("key", "script")

    def __init__(self, script: Script) -> None:
        self.script = script
        self.key = repr(script) if script.headers else script

    def __hash__(self) -> int:
        return hash(self.key) if isinstance(self.key, str) else hash((self.script.chunks, self.script.piece))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashable) and self.key == other.key


@lru_cache(maxsize=256)
def _whole(script: _Hashable, path: str, is_stream: bool) -> tuple[bytes, int, bool]:
    pieces = list(answer(script.script, path, is_stream=is_stream))
    return (
        b"".join(piece.content for piece in pieces),
        sum(piece.tokens for piece in pieces),
        any(piece.reports for piece in pieces),
    )


def _parsed(content: bytes) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(content) if content else {}
    return parsed


def _document(value: object) -> bytes:
    content = json.dumps(value).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def main() -> None:
    """Run until standard input closes or a signal arrives; the first line printed is the base URL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", default="{}", help="the standing script, as JSON")
    options = parser.parse_args()
    with FakeUpstream(script_from(json.loads(options.script)), port=options.port) as upstream:
        print(upstream.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
