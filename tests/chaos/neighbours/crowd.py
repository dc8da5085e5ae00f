"""A crowd of connections: each sends fixed bytes, stays open as long as the server permits, and reconnects.

One thread with one event loop holds all of them, so that the crowd takes little CPU from the attacked service.
"""

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

AGAIN_SECONDS = 1.0
"""How soon a connection that was ended or refused is made again."""
CONNECTIONS_A_TICK = 50
TICK_SECONDS = 0.02
TRICKLE_SECONDS = 0.5
SMALL_WINDOW_BYTES = 4096
ADDRESSES = tuple(f"127.0.66.{number}" for number in range(1, 17))
"""Where the crowd comes from: honest callers have another address."""


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """The behavior of a connection: send these bytes, then a byte now and then, and read everything or nothing."""

    request: Callable[[int], bytes]
    trickles: bytes = b""
    reads: bool = True


class Crowd:
    """Connections that stay open within a block."""

    def __init__(self, ports: Sequence[int], behaviour: Behaviour, size: int) -> None:
        """Open `size` connections, spread over these local ports."""
        self._ports = ports
        self._behaviour = behaviour
        self._size = size
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="crowd", daemon=True)
        self._tasks: list[asyncio.Task[None]] = []
        self._begun = threading.Event()
        self.answers: Counter[str] = Counter()
        """Statuses of the answers that were heard; `open` counts what was connected."""

    def __enter__(self) -> Self:
        """Open every connection once."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._begin(), self._loop).result(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _begin(self) -> None:
        for number in range(self._size):
            self._tasks.append(self._loop.create_task(self._live(number)))
            if number % CONNECTIONS_A_TICK == CONNECTIONS_A_TICK - 1:
                await asyncio.sleep(TICK_SECONDS)

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _live(self, number: int) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._connect(number)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _connect(self, number: int) -> None:
        port = self._ports[number % len(self._ports)]
        sock = socket.socket()
        sock.setblocking(False)
        if not self._behaviour.reads:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW_BYTES)
        try:
            sock.bind((ADDRESSES[number % len(ADDRESSES)], 0))
            await self._loop.sock_connect(sock, ("127.0.0.1", port))
            self.answers["open"] += 1
            await self._loop.sock_sendall(sock, self._behaviour.request(number))
            await self._hold(sock)
        finally:
            sock.close()

    async def _hold(self, sock: socket.socket) -> None:
        if self._behaviour.reads:
            trickling = self._loop.create_task(self._trickle(sock))
            try:
                await self._read(sock)
            finally:
                trickling.cancel()
        else:
            await asyncio.sleep(3600)

    async def _trickle(self, sock: socket.socket) -> None:
        while self._behaviour.trickles:
            await asyncio.sleep(TRICKLE_SECONDS)
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(sock, self._behaviour.trickles)

    async def _read(self, sock: socket.socket) -> None:
        is_first = True
        while data := await self._loop.sock_recv(sock, 65536):
            if is_first:
                self.answers[data[9:12].decode("latin-1")] += 1
                is_first = False
