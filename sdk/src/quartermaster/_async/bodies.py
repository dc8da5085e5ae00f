"""The body of an upload, read from its source while it is sent, and from the beginning for each attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from quartermaster._concurrency import ASYNC_PIECE_BYTES, async_call, async_pieces
from quartermaster._contents import AsyncSource, Content, measure, name_of, new_spool, open_file, read_once
from quartermaster._multipart import Frame

Progress = Callable[[int, int], None]
"""Called with the bytes sent so far and all there are; a retry begins again at nothing."""


class AsyncFramedBody(httpx.AsyncByteStream):
    """A multipart body; httpx may iterate over it again for another attempt."""

    def __init__(self, frame: Frame, content: Content, progress: Progress | None) -> None:
        self._frame = frame
        self._content = content
        self._progress = progress

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._frame.head
        content, sent = self._content, 0
        await async_call(content.rewind)
        while sent < content.size_bytes:
            piece = await async_call(content.read, min(ASYNC_PIECE_BYTES, content.size_bytes - sent))
            yield piece
            sent += len(piece)
            if self._progress is not None:
                self._progress(sent, content.size_bytes)
        yield self._frame.tail


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
