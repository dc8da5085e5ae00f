"""The body of an upload, read from its source while it is sent, and from the beginning for each attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from quartermaster._concurrency import ASYNC_PIECE_BYTES, async_call, async_pieces
from quartermaster._contents import AsyncSource, Content, measure, name_of, new_spool, open_file, read_once

Progress = Callable[[int, int], None]
"""Called with the bytes sent so far and all there are; a retry goes back to what has arrived."""


class AsyncBody(httpx.AsyncByteStream):
    """Some of the content within its frame; httpx may iterate over it again for another attempt."""

    def __init__(
        self,
        content: Content,
        progress: Progress | None,
        *,
        start: int = 0,
        stop: int,
        head: bytes = b"",
        tail: bytes = b"",
    ) -> None:
        self._content = content
        self._progress = progress
        self._start, self._stop = start, stop
        self._head, self._tail = head, tail

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._head
        content, at = self._content, self._start
        await async_call(content.rewind, at)
        while at < self._stop:
            piece = await async_call(content.read, min(ASYNC_PIECE_BYTES, self._stop - at))
            yield piece
            at += len(piece)
            if self._progress is not None:
                self._progress(at, content.size_bytes)
        yield self._tail


@asynccontextmanager
async def async_open_content(
    source: AsyncSource, file_name: str | None, media_type: str | None
) -> AsyncIterator[Content]:
    """Open what is to be uploaded, and read it once for its size and digest."""
    name = name_of(source, file_name)
    opened = await async_call(open_file, source)
    if opened is not None:
        with opened as file:
            yield await async_call(measure, file, name, media_type)
        return
    with new_spool() as spool:
        async for piece in async_pieces(read_once(source)):
            await async_call(spool.write, piece)
        spool.seek(0)
        yield await async_call(measure, spool, name, media_type)
