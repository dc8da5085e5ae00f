"""A small HTTP server that responds to creation requests through the translator, for the official client."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import UUID

from shared.models.dialects import (
    Delta,
    Dialect,
    ParsedRequest,
    Translator,
    end_of_stream,
    frame_writer,
    parse_chat,
    parse_messages,
    parse_responses,
    upstream_body,
)

_PARSERS: dict[str, Callable[[Any], ParsedRequest]] = {
    "completions": parse_chat,
    "responses": parse_responses,
    "messages": parse_messages,
}
INVOCATION = UUID("01935b2a-0000-7000-8000-000000000001")
MODEL = "acme/large"
CREATED = 1_790_000_000


@dataclass
class Script:
    """The upstream's next reply and its dialect. Requests are recorded."""

    upstream: Dialect = Dialect.CHAT
    events: list[dict[str, Any]] = field(default_factory=list)
    received_done_marker: bool = False
    asked: dict[str, Any] = field(default_factory=dict)
    frames: list[bytes] = field(default_factory=list)


def translator_for(parsed: ParsedRequest, upstream: Dialect) -> Translator:
    """Make the translator of a reply with fixed ids and times."""
    return Translator(
        parsed,
        upstream_dialect=upstream,
        invocation_id=INVOCATION,
        model_id=MODEL,
        created=CREATED,
        clock=lambda: CREATED + 2.5,
    )


def relay(
    parsed: ParsedRequest,
    upstream: Dialect,
    events: list[dict[str, Any]],
    *,
    received_done_marker: bool = False,
) -> tuple[Translator, list[bytes]]:
    """Feed a whole upstream stream, and write its frames; the events stay unchanged for the caller."""
    translator = translator_for(parsed, upstream)
    deltas = [delta for event in copy.deepcopy(events) for delta in translator.feed(event)]
    translator.end(received_done_marker=received_done_marker)
    return translator, write_stream(parsed, deltas + translator.finish())


def write_stream(parsed: ParsedRequest, deltas: list[Delta]) -> list[bytes]:
    """Write the frames of a stream, with its terminator. Write nothing for a client that requested a whole reply."""
    write = frame_writer(parsed.dialect)
    end = end_of_stream(parsed.dialect)
    frames = [*(write([delta]) for delta in deltas), *([end] if end else [])]
    return frames if parsed.is_stream else []


def read_frames(frames: list[bytes]) -> list[dict[str, Any]]:
    """Read frames back, checking that each is one whole event and that the last is the terminator."""
    assert frames[-1] == b"data: [DONE]\n\n"
    return read_events(frames[:-1])


def read_events(frames: list[bytes]) -> list[dict[str, Any]]:
    """Read the frames of events back, checking that each is one whole event."""
    events = []
    for frame in frames:
        assert frame.endswith(b"\n\n")
        assert frame.count(b"\n\n") == 1
        assert b"\r" not in frame
        lines = frame.decode("ascii").removesuffix("\n\n").split("\n")
        event = json.loads(lines[-1].removeprefix("data: "))
        if len(lines) > 1:
            assert lines == [f"event: {event['type']}", lines[1]]
        events.append(event)
    return events


@contextmanager
def serve(script: Script) -> Iterator[str]:
    """Serve on a free port. Yield the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            """Log nothing."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            parsed = _PARSERS[self.path.rpartition("/")[2]](body)
            script.asked = upstream_body(parsed, script.upstream, "upstream-model")
            translator, script.frames = relay(
                parsed, script.upstream, script.events, received_done_marker=script.received_done_marker
            )
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if parsed.is_stream else "application/json")
            self.end_headers()
            if parsed.is_stream:
                for frame in script.frames:
                    self.wfile.write(frame)
            else:
                self.wfile.write(translator.body())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
