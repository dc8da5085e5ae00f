"""The body of an upload, read from its source while it is sent, and from the beginning for each attempt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from quartermaster._concurrency import PIECE_BYTES, call, pieces
from quartermaster._contents import Source, Content, measure, name_of, new_spool, open_file, read_once
from quartermaster._multipart import FramedContent


class Body(FramedContent, httpx.SyncByteStream):
    """A body that httpx may iterate over again for another attempt."""

    def __iter__(self) -> Iterator[bytes]:
        yield self.head
        at = self.start
        call(self.content.rewind, at)
        while at < self.stop:
            piece = call(self.content.read, min(PIECE_BYTES, self.stop - at))
            yield piece
            at += len(piece)
            self.tell(at)
        yield self.tail


@contextmanager
def open_content(
    source: Source, file_name: str | None, media_type: str | None
) -> Iterator[Content]:
    """Open what is to be uploaded, and read it once for its size and digest."""
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
