"""The body of an upload, read from its source while it is sent, and from the beginning for each attempt."""

from __future__ import annotations

from collections.abc import Iterator, Callable
from contextlib import contextmanager

import httpx

from quartermaster._concurrency import PIECE_BYTES, call, pieces
from quartermaster._contents import Source, Content, measure, name_of, new_spool, open_file, read_once

Progress = Callable[[int, int], None]
"""Called with the bytes sent so far and all there are; a retry goes back to what has arrived."""


class Body(httpx.SyncByteStream):
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

    def __iter__(self) -> Iterator[bytes]:
        yield self._head
        content, at = self._content, self._start
        call(content.rewind, at)
        while at < self._stop:
            piece = call(content.read, min(PIECE_BYTES, self._stop - at))
            yield piece
            at += len(piece)
            if self._progress is not None:
                self._progress(at, content.size_bytes)
        yield self._tail


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
