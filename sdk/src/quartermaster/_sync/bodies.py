"""The body of an upload, read from its source while it is sent, and from the beginning for each attempt."""

from __future__ import annotations

from collections.abc import Iterator, Callable
from contextlib import contextmanager

import httpx

from quartermaster._concurrency import PIECE_BYTES, call, pieces
from quartermaster._contents import Source, Content, measure, name_of, new_spool, open_file, read_once
from quartermaster._multipart import Frame

Progress = Callable[[int, int], None]
"""Called with the bytes sent so far and all there are; a retry begins again at nothing."""


class FramedBody(httpx.SyncByteStream):
    """A multipart body; httpx may iterate over it again for another attempt."""

    def __init__(self, frame: Frame, content: Content, progress: Progress | None) -> None:
        self._frame = frame
        self._content = content
        self._progress = progress

    def __iter__(self) -> Iterator[bytes]:
        yield self._frame.head
        content, sent = self._content, 0
        call(content.rewind)
        while sent < content.size_bytes:
            piece = call(content.read, min(PIECE_BYTES, content.size_bytes - sent))
            yield piece
            sent += len(piece)
            if self._progress is not None:
                self._progress(sent, content.size_bytes)
        yield self._frame.tail


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
