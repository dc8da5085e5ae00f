"""Download content: resume after a lost connection, verify the digest, and leave no incomplete file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO
from uuid import UUID

import httpx

from quartermaster._async.sender import AsyncSender
from quartermaster._concurrency import ASYNC_PIECE_BYTES, async_call, async_sleep
from quartermaster._contents import Progress
from quartermaster._download_state import DownloadState, flush_to_disk
from quartermaster._retries import RequestFailure, retry_delay_seconds
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
        """Download content to a path or into a file, and return its size in bytes."""
        query = query_of({"version_id": version_id})
        if not isinstance(to, (str, os.PathLike)):
            return await self._receive(path, query, to, progress)
        async with _async_part_of(Path(to)) as part:
            return await self._receive(path, query, part, progress)

    async def _receive(
        self, path: str, query: dict[str, str], file: IO[bytes], progress: Progress | None
    ) -> int:
        state = DownloadState(file, start=file.tell() if file.seekable() else 0)
        retries = 0
        while True:
            before = state.size_bytes
            failure = await self._continue(path, query, state, progress)
            if failure is None:
                state.verify_digest()
                return state.size_bytes
            # Count only attempts without progress: a large file over a bad connection may need many attempts.
            retries = 0 if state.size_bytes > before else retries + 1
            pause = retry_delay_seconds(
                failure,
                retries_so_far=retries,
                max_retries=self._sender.settings.max_retries,
                is_repeatable=True,
            )
            if pause is None:
                raise ConnectionFailed(failure.reason)
            await async_sleep(pause)

    async def _continue(
        self, path: str, query: dict[str, str], state: DownloadState, progress: Progress | None
    ) -> RequestFailure | None:
        """Request the rest of the content. Return the failure that ended the attempt, or None at success."""
        # Disable compression: byte ranges and the digest apply to the stored bytes, not to compressed bytes.
        headers = {"Accept-Encoding": "identity"}
        if state.size_bytes and state.entity_tag:
            # If-Range prevents a mix of two versions: if the file has a new version, the service sends the whole
            # new version and not a range of it.
            headers |= {"Range": f"bytes={state.size_bytes}-", "If-Range": state.entity_tag}

        def make_request() -> httpx.Request:
            return self._sender.http.build_request(
                "GET", self._sender.url(path), params=query, headers=headers
            )

        response = await self._sender.open(make_request, self._auth)
        try:
            # A status other than 206 means that the response has the whole content, so discard the received bytes.
            if response.status_code != _PARTIAL:
                length = int(response.headers.get("Content-Length", 0))
                await async_call(state.restart, response.headers.get("ETag"), length)
            return await _drain(response, state, progress)
        finally:
            await response.aclose()


async def _drain(
    response: httpx.Response, state: DownloadState, progress: Progress | None
) -> RequestFailure | None:
    """Write the response's bytes, including those before a failure, in large pieces. Return the failure or None."""
    failure, piece = None, bytearray()
    try:
        async for chunk in response.aiter_raw():
            piece += chunk
            if len(piece) >= ASYNC_PIECE_BYTES:
                await async_call(state.write, piece)
                if progress is not None:
                    progress(state.size_bytes, state.total_bytes)
                piece = bytearray()
    except httpx.TransportError as error:
        failure = RequestFailure(f"GET {response.request.url.path}: {type(error).__name__}", was_sent=True)
    # Write the last piece also after a failure: the next attempt continues after the last byte that arrived.
    await async_call(state.write, piece)
    if progress is not None:
        progress(state.size_bytes, state.total_bytes)
    return failure


@asynccontextmanager
async def _async_part_of(path: Path) -> AsyncIterator[IO[bytes]]:
    """Yield a temporary file. If the block succeeds, the file is renamed to `path`; if not, the file is deleted."""
    # Create the file in the directory of `path`, because os.replace needs both on the same file system.
    handle, name = await async_call(
        tempfile.mkstemp, prefix=f".{path.name}.", suffix=".part", dir=path.parent
    )
    try:
        with os.fdopen(handle, "wb") as part:
            yield part
            await async_call(flush_to_disk, part)
        await async_call(os.replace, name, path)
    # Catch BaseException: cancellation and Ctrl-C must also leave no incomplete file.
    except BaseException:
        with suppress(FileNotFoundError):
            await async_call(os.unlink, name)
        raise
