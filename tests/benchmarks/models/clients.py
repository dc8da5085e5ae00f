"""Many callers of a model in one thread: whole replies are timed, streams are read chunk by chunk.

Only the needed parts are parsed, because the callers share the machine with the product.
"""

import re
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.clients import RequestFailed, content_length

END_OF_STREAM = b"\r\n0\r\n\r\n"
# The first text of either upstream: the fake one sends "token ", the pacing one a timestamp.
_FIRST_TOKEN = re.compile(rb'"content": ?"(?:token|at) ')
_STAMP = re.compile(rb'"content": ?"at ([0-9.]+)"')
_LONGEST_MATCH = 64


@dataclass(slots=True, kw_only=True)
class Timings:
    """Measurements in seconds: each call, the first token of each stream, the delay of each stamped chunk."""

    seconds: float = 0.0
    calls: list[float] = field(default_factory=list)
    first_tokens: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Caller:
    connection: socket.socket
    sent_at: float
    received: bytearray = field(default_factory=bytearray)
    scanned: int = 0
    has_token: bool = False


_Read = Callable[[_Caller, Timings, float], bool]


def run_calls(port: int, request: bytes, *, callers: int, count: int) -> Timings:
    """Request this many whole replies, each caller in sequence."""
    return _run(port, request, callers, count, _read_answer)


def run_streams(port: int, request: bytes, *, callers: int, count: int) -> Timings:
    """Read this many streams, each caller in sequence."""
    return _run(port, request, callers, count, _read_stream)


def run_events(port: int, request: bytes, *, callers: int, count: int) -> Timings:
    """Read this many streams of agents' updates, each caller in sequence."""
    return _run(port, request, callers, count, _read_events)


def first_event(port: int, request: bytes) -> float:
    """Request a stream of agents' updates, and close it after its first event. Return the seconds until then."""
    with _connect(port) as connection:
        caller = _Caller(connection=connection, sent_at=time.perf_counter())
        timings = Timings()
        connection.sendall(request)
        while not timings.first_tokens:
            _is_over(caller, timings, _read_events)
    return timings.first_tokens[0]


def _run(port: int, request: bytes, callers: int, count: int, read: _Read) -> Timings:
    timings = Timings()
    connections = [_connect(port) for _ in range(min(callers, count))]
    left = count - len(connections)
    started_at = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            caller = _Caller(connection=connection, sent_at=time.perf_counter())
            connection.sendall(request)
            selector.register(connection, selectors.EVENT_READ, caller)
        while selector.get_map():
            for key, _ in selector.select():
                if not _is_over(key.data, timings, read):
                    continue
                if left:
                    left -= 1
                    _again(key.data, request)
                else:
                    selector.unregister(key.fileobj)
                    key.data.connection.close()
    timings.seconds = time.perf_counter() - started_at
    return timings


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=120)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _again(caller: _Caller, request: bytes) -> None:
    caller.received.clear()
    caller.scanned, caller.has_token = 0, False
    caller.sent_at = time.perf_counter()
    caller.connection.sendall(request)


def _is_over(caller: _Caller, timings: Timings, read: _Read) -> bool:
    piece = caller.connection.recv(1 << 18)
    now = time.perf_counter()
    if not piece:
        raise RequestFailed("the server closed the connection")
    caller.received += piece
    if not read(caller, timings, now):
        return False
    timings.calls.append(now - caller.sent_at)
    return True


def _read_answer(caller: _Caller, _timings: Timings, _now: float) -> bool:
    received: Any = caller.received
    end = received.find(b"\r\n\r\n")
    if end < 0 or len(received) < end + 4 + content_length(bytes(received[:end])):
        return False
    _expect_success(caller)
    return True


def _read_stream(caller: _Caller, timings: Timings, now: float) -> bool:
    received = caller.received
    if not caller.has_token and _FIRST_TOKEN.search(received):
        _expect_success(caller)
        caller.has_token = True
        timings.first_tokens.append(now - caller.sent_at)
    for found in _STAMP.finditer(received, caller.scanned):
        timings.late.append(now - float(found[1]))
        caller.scanned = found.end()
    caller.scanned = max(caller.scanned, len(received) - _LONGEST_MATCH)
    if not received.endswith(END_OF_STREAM):
        return False
    if not caller.has_token or b"[DONE]" not in received[-200:]:
        raise RequestFailed(bytes(received[-2000:]).decode(errors="replace"))
    return True


def _read_events(caller: _Caller, timings: Timings, now: float) -> bool:
    if not caller.has_token and b"data:" in caller.received:
        _expect_success(caller)
        caller.has_token = True
        timings.first_tokens.append(now - caller.sent_at)
    if not caller.received.endswith(END_OF_STREAM):
        return False
    if b"TASK_STATE_COMPLETED" not in caller.received:
        raise RequestFailed(bytes(caller.received[-2000:]).decode(errors="replace"))
    return True


def _expect_success(caller: _Caller) -> None:
    if caller.received[9:12] != b"200":
        raise RequestFailed(bytes(caller.received[:2000]).decode(errors="replace"))
