"""The request body of an upload. It is read from its source while it is sent, again for each attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from quartermaster._concurrency import ASYNC_PIECE_BYTES, async_call, async_pieces
from quartermaster._contents import AsyncSource, Content, measure, name_of, new_spool, open_file, read_once
from quartermaster._multipart import FramedContent


class AsyncBody(FramedContent, httpx.AsyncByteStream):
    """A body that httpx can iterate over again for another attempt."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.head
        offset = self.start
        # Another attempt iterates again, and the file is where the failed attempt left it.
        await async_call(self.content.rewind, offset)
        while offset < self.stop:
            piece = await async_call(self.content.read, min(ASYNC_PIECE_BYTES, self.stop - offset))
            yield piece
            # httpx asks for the next piece only after this one was sent.
            offset += len(piece)
            self.report_progress(offset)
        yield self.tail


@asynccontextmanager
async def async_open_content(
    source: AsyncSource, file_name: str | None, media_type: str | None
) -> AsyncIterator[Content]:
    """Open a source for the block, and read it once to compute its size and digest.

    Raises ValueError without a file name, and TypeError for a file in text mode.
    """
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
