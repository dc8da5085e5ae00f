"""The request body of an upload. It is read from its source while it is sent, again for each attempt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from quartermaster._concurrency import PIECE_BYTES, call, pieces
from quartermaster._contents import Source, Content, measure, name_of, new_spool, open_file, read_once
from quartermaster._multipart import FramedContent


class Body(FramedContent, httpx.SyncByteStream):
    """A body that httpx can iterate over again for another attempt."""

    def __iter__(self) -> Iterator[bytes]:
        yield self.head
        offset = self.start
        # Another attempt iterates again, and the file is where the failed attempt left it.
        call(self.content.rewind, offset)
        while offset < self.stop:
            piece = call(self.content.read, min(PIECE_BYTES, self.stop - offset))
            yield piece
            # httpx asks for the next piece only after this one was sent.
            offset += len(piece)
            self.report_progress(offset)
        yield self.tail


@contextmanager
def open_content(
    source: Source, file_name: str | None, media_type: str | None
) -> Iterator[Content]:
    """Open a source for the block, and read it once to compute its size and digest.

    Raises ValueError without a file name, and TypeError for a file in text mode.
    """
    name = name_of(source, file_name)
    opened = call(open_file, source)
    if opened is not None:
        with opened as file:
            yield call(measure, file, name, media_type)
        return
    with new_spool() as spool:
        for piece in pieces(read_once(source)):
            call(spool.write, piece)
        spool.seek(0)
        yield call(measure, spool, name, media_type)
