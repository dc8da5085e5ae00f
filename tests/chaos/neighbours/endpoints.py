"""Endpoints for updates of tasks: one accepts them, and one accepts connections without ever responding."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Self

from tests.support.data.media_sources import begin
from tests.support.servers.local_servers import LocalServer


class PostedUpdates(LocalServer):
    """An endpoint that records the last path segment of each post."""

    def __init__(self) -> None:
        """Listen on a free port once entered."""
        super().__init__()
        self._names: set[str] = set()
        self._changed = threading.Condition()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Record an update."""
        handler.rfile.read(int(handler.headers["Content-Length"]))
        with self._changed:
            self._names.add(handler.path.rpartition("/")[2])
            self._changed.notify_all()
        begin(handler, 204, {"Content-Length": "0"})

    def wait_for(self, name: str, seconds: float) -> None:
        """Wait for an update of this name; raise if there is none within the seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: name in self._names, seconds):
                raise AssertionError("the update was not posted")


class SilentEndpoint:
    """An endpoint that reads requests and never responds."""

    def __init__(self) -> None:
        """Listen on a free port once entered."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="silent-endpoint", daemon=True)
        self._port = 0

    @property
    def url(self) -> str:
        """Return the address."""
        return f"http://127.0.0.1:{self._port}/silent"

    def __enter__(self) -> Self:
        """Start listening."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(asyncio.Protocol, "127.0.0.1", 0, backlog=512)
        self._port = self._server.sockets[0].getsockname()[1]
