"""The request body of an upload. Each attempt reads the content from its source again while it sends the body."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from quartermaster._concurrency import PIECE_BYTES, call, pieces
from quartermaster._contents import Source, Content, measure, name_of, new_spool, open_file, read_once
from quartermaster._multipart import FramedContent


class Body(FramedContent, httpx.SyncByteStream):
    """A request body that httpx can iterate over more than once, because each attempt iterates over the body."""

    def __iter__(self) -> Iterator[bytes]:
        yield self.head
        offset = self.start
        # Rewind the file: a failed attempt may have left the file's position in the middle of the content.
        call(self.content.rewind, offset)
        while offset < self.stop:
            piece = call(self.content.read, min(PIECE_BYTES, self.stop - offset))
            yield piece
            # Count the piece as sent here: httpx requests the next piece only after it has sent this piece.
            offset += len(piece)
            self.report_progress(offset)
        yield self.tail


@contextmanager
def open_content(
    source: Source, file_name: str | None, media_type: str | None
) -> Iterator[Content]:
    """Yield the content of a source, which is read once to compute its size and digest.

    Raises ValueError if there is no file name, and TypeError if the file is open in text mode.
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
