"""The request body of an upload. Each attempt reads the content from its source again while it sends the body."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from quartermaster._concurrency import ASYNC_PIECE_BYTES, async_call, async_pieces
from quartermaster._contents import AsyncSource, Content, measure, name_of, new_spool, open_file, read_once
from quartermaster._multipart import FramedContent


class AsyncBody(FramedContent, httpx.AsyncByteStream):
    """A request body that httpx can iterate over more than once, because each attempt iterates over the body."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.head
        offset = self.start
        # Rewind the file: a failed attempt may have left the file's position in the middle of the content.
        await async_call(self.content.rewind, offset)
        while offset < self.stop:
            piece = await async_call(self.content.read, min(ASYNC_PIECE_BYTES, self.stop - offset))
            yield piece
            # Count the piece as sent here: httpx requests the next piece only after it has sent this piece.
            offset += len(piece)
            self.report_progress(offset)
        yield self.tail


@asynccontextmanager
async def async_open_content(
    source: AsyncSource, file_name: str | None, media_type: str | None
) -> AsyncIterator[Content]:
    """Yield the content of a source, which is read once to compute its size and digest.

    Raises ValueError if there is no file name, and TypeError if the file is open in text mode.
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
