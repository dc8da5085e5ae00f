"""Downloads: resumed where they broke off, whole or not at all, and with the digest that the service announced."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO
from uuid import UUID

import httpx

from quartermaster._async.sending import AsyncSender
from quartermaster._concurrency import ASYNC_PIECE_BYTES, async_call, async_sleep
from quartermaster._contents import Progress
from quartermaster._received import Received, make_durable
from quartermaster._retries import Unanswered, pause_before_retry
from quartermaster._wire import query_of
from quartermaster.errors import ConnectionFailed

_PARTIAL = 206


class AsyncDownloads:
    """Downloads content with the caller's credentials."""

    def __init__(self, sender: AsyncSender, auth: httpx.Auth) -> None:
        self._sender = sender
        self._auth = auth

    async def download(
        self,
        path: str,
        to: str | os.PathLike[str] | IO[bytes],
        version_id: UUID | None,
        progress: Progress | None,
    ) -> int:
        """Download content to a path or into a file; give its size."""
        query = query_of({"version_id": version_id})
        if not isinstance(to, (str, os.PathLike)):
            return await self._receive(path, query, to, progress)
        async with _async_part_of(Path(to)) as part:
            return await self._receive(path, query, part, progress)

    async def _receive(
        self, path: str, query: dict[str, str], file: IO[bytes], progress: Progress | None
    ) -> int:
        received = Received(file, start=file.tell() if file.seekable() else 0)
        retries = 0
        while True:
            before = received.size_bytes
            failure = await self._continue(path, query, received, progress)
            if failure is None:
                received.require_whole()
                return received.size_bytes
            # Only attempts that brought nothing count: a large file over a bad line may break off often.
            retries = 0 if received.size_bytes > before else retries + 1
            pause = pause_before_retry(
                failure,
                retries_so_far=retries,
                max_retries=self._sender.settings.max_retries,
                is_repeatable=True,
            )
            if pause is None:
                raise ConnectionFailed(failure.reason)
            await async_sleep(pause)

    async def _continue(
        self, path: str, query: dict[str, str], received: Received, progress: Progress | None
    ) -> Unanswered | None:
        """Receive from where the last attempt ended."""
        headers = {"Accept-Encoding": "identity"}
        if received.size_bytes and received.entity_tag:
            headers |= {"Range": f"bytes={received.size_bytes}-", "If-Range": received.entity_tag}

        def make_request() -> httpx.Request:
            return self._sender.http.build_request(
                "GET", self._sender.url(path), params=query, headers=headers
            )

        response = await self._sender.open(make_request, self._auth)
        try:
            if response.status_code != _PARTIAL:
                length = int(response.headers.get("Content-Length", 0))
                await async_call(received.begin, response.headers.get("ETag"), length)
            return await _drain(response, received, progress)
        finally:
            await response.aclose()


async def _drain(
    response: httpx.Response, received: Received, progress: Progress | None
) -> Unanswered | None:
    """Write what arrives in large pieces, and what had arrived when it broke off."""
    failure, piece = None, bytearray()
    try:
        async for arrived in response.aiter_raw():
            piece += arrived
            if len(piece) >= ASYNC_PIECE_BYTES:
                await async_call(received.write, piece)
                if progress is not None:
                    progress(received.size_bytes, received.total_bytes)
                piece = bytearray()
    except httpx.TransportError as error:
        failure = Unanswered(f"GET {response.request.url.path}: {type(error).__name__}", was_sent=True)
    await async_call(received.write, piece)
    if progress is not None:
        progress(received.size_bytes, received.total_bytes)
    return failure


@asynccontextmanager
async def _async_part_of(path: Path) -> AsyncIterator[IO[bytes]]:
    """Give a file beside a path that takes its place when the block ends well, and is removed otherwise."""
    handle, name = await async_call(
        tempfile.mkstemp, prefix=f".{path.name}.", suffix=".part", dir=path.parent
    )
    try:
        with os.fdopen(handle, "wb") as part:
            yield part
            await async_call(make_durable, part)
        await async_call(os.replace, name, path)
    except BaseException:
        with suppress(FileNotFoundError):
            await async_call(os.unlink, name)
        raise
