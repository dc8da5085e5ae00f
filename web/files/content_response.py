"""The response to a download: one exact version, whole or in ranges.

The response has exactly the announced bytes: a file of another length is refused before the first byte. If
the source fails, the connection is closed, because a short response would look complete. Each chunk of a
local file is checked before it is sent, unless the file was checked a moment ago (`recent_checks`). If the
front proxy sends the file, or the file has no checksums yet, only the scrub detects decay.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from io import FileIO
from itertools import chain
from typing import IO, cast
from wsgiref.types import WSGIEnvironment

from flask import Response
from werkzeug.wsgi import wrap_file

from shared.files.blobs.base import BlobDamaged, BlobReader
from shared.files.blobs.chunks import CHECKED_CHUNK_BYTES, checked_chunks
from shared.files.blobs.recent_checks import RecentChecks, state_of
from shared.files.resources import Version
from web.files.presentation import Presentation, describe, protect
from web.files.ranges import ByteRange, Selection, select_bytes

# As large as a checked chunk (CHECKED_CHUNK_BYTES).
BLOCK_BYTES = 256 << 10

_CONDITIONS = {
    "If-Match": "HTTP_IF_MATCH",
    "If-None-Match": "HTTP_IF_NONE_MATCH",
    "If-Range": "HTTP_IF_RANGE",
    "Range": "HTTP_RANGE",
}


def content_response(
    environ: WSGIEnvironment,
    version: Version,
    blob: BlobReader,
    *,
    presentation: Presentation,
    proxy_prefix: str | None = None,
    checksums: bytes | None = None,
    report_damage: Callable[[], None] = lambda: None,
    recent: RecentChecks | None = None,
) -> Response:
    """Return the response to a GET or HEAD of content. Close the blob after sending it, or on any error.

    With a `proxy_prefix` the front proxy sends a local file (X-Accel-Redirect) and handles ranges itself.
    With `checksums` of its chunks, a local file is checked while it is sent. If damage is found after the
    response began, `report_damage` is called and the connection is closed. Raises VersionMismatch,
    RangeNotSatisfiable, BlobDamaged, and the errors of the blob.
    """
    download = _Download(version, blob, checksums, report_damage, recent or RecentChecks())
    try:
        return _respond(environ, download, presentation, proxy_prefix)
    except BaseException:
        blob.close()
        raise


@dataclass(frozen=True)
class _Download:
    """One version while its content is sent."""

    version: Version
    blob: BlobReader
    checksums: bytes | None
    report_damage: Callable[[], None]
    recent: RecentChecks

    @cached_property
    def is_checked(self) -> bool:
        """Whether each chunk is checked before it is sent. sendfile cannot check chunks."""
        return (
            self.checksums is not None
            and self.blob.file is not None
            and self.version.byte_size > CHECKED_CHUNK_BYTES
            and not self.recent.has(self.version.id, self.blob.file)
        )

    def begin(self, at: ByteRange) -> Iterator[bytes]:
        """Return the chunks of a range.

        Raises BlobDamaged before the response begins if the first chunk is damaged.
        """
        chunks = self.chunks(at)
        return chain([next(chunks)], chunks) if self.is_checked else chunks

    def chunks(self, at: ByteRange) -> Iterator[bytes]:
        """Return the chunks of a range."""
        if self.checksums is None or not self.is_checked:
            return self.blob.chunks(at.start, at.stop)
        return self._checked(at, self.checksums)

    def _checked(self, at: ByteRange, checksums: bytes) -> Iterator[bytes]:
        size_bytes = self.version.byte_size
        state = state_of(self.blob.file) if self.blob.file is not None else None
        try:
            yield from checked_chunks(
                self.blob, at.start, at.stop, size_bytes=size_bytes, checksums=checksums
            )
        except BlobDamaged:
            self.report_damage()
            raise
        # Record the check only after a complete download, because only then are all chunks checked.
        if state is not None and len(at) == size_bytes:
            self.recent.note(self.version.id, state)


def _respond(
    environ: WSGIEnvironment, download: _Download, presentation: Presentation, proxy_prefix: str | None
) -> Response:
    version, blob = download.version, download.blob
    entity_tag = f'"{version.content_sha256.hex()}"'
    response = Response(headers={"ETag": entity_tag, "Vary": "Authorization"})
    protect(response.headers, version, presentation)
    conditions = {name: environ[variable] for name, variable in _CONDITIONS.items() if variable in environ}
    method = environ["REQUEST_METHOD"]
    selected = select_bytes(method, conditions, entity_tag=entity_tag, byte_size=version.byte_size)
    # A 304 keeps the caching and protection headers, but sends no content and so no headers that describe
    # content.
    if selected is Selection.NOT_MODIFIED:
        response.status_code = HTTPStatus.NOT_MODIFIED
        blob.close()
        return response
    describe(response.headers, version, presentation)
    if proxy_prefix is not None and blob.fixed_path is not None:
        response.headers["X-Accel-Redirect"] = f"{proxy_prefix.rstrip('/')}/{blob.fixed_path}"
        blob.close()
        return response
    _refuse_damaged(download)
    ranges = [ByteRange(0, version.byte_size)] if isinstance(selected, Selection) else selected
    if not isinstance(selected, Selection):
        response.status_code = HTTPStatus.PARTIAL_CONTENT
    if len(ranges) > 1:
        return _send_parts(response, download, ranges)
    return _send_range(response, environ, download, ranges[0])


def _refuse_damaged(download: _Download) -> None:
    file = download.blob.file
    if file is not None and not _is_plausible(file, download.version):
        download.report_damage()
        raise BlobDamaged


def _is_plausible(file: FileIO, version: Version) -> bool:
    # Refuse a file of another length: with too few bytes, the client would read the next response as the
    # rest.
    if os.fstat(file.fileno()).st_size != version.byte_size:
        return False
    # If the content is a single chunk, compare it with the SHA-256 of the version.
    if version.byte_size <= CHECKED_CHUNK_BYTES:
        content = os.pread(file.fileno(), version.byte_size, 0)
        return hashlib.sha256(content).digest() == version.content_sha256
    return True


def _send_range(response: Response, environ: WSGIEnvironment, download: _Download, at: ByteRange) -> Response:
    version, blob = download.version, download.blob
    response.content_length = len(at)
    if response.status_code == HTTPStatus.PARTIAL_CONTENT:
        response.headers["Content-Range"] = _content_range(at, version)
    if environ["REQUEST_METHOD"] == "HEAD" or not len(at):
        blob.close()
    elif blob.file is not None and not download.is_checked:
        response.response = wrap_file(environ, cast("IO[bytes]", _FilePart(blob, blob.file, at)), BLOCK_BYTES)
        response.direct_passthrough = True
    else:
        response.response = download.begin(at)
        response.call_on_close(blob.close)
    return response


def _send_parts(response: Response, download: _Download, ranges: Sequence[ByteRange]) -> Response:
    version, blob = download.version, download.blob
    boundary = secrets.token_hex(16)
    content_type = response.headers["Content-Type"]
    heads = [
        f"\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {_content_range(at, version)}\r\n\r\n"
        for at in ranges
    ]
    pieces = [head.encode("latin-1") for head in heads]
    end = f"\r\n--{boundary}--\r\n".encode()
    response.headers["Content-Type"] = f"multipart/byteranges; boundary={boundary}"
    response.content_length = sum(map(len, pieces)) + sum(map(len, ranges)) + len(end)
    response.response = _parts(download, ranges, pieces, end)
    response.call_on_close(blob.close)
    return response


def _parts(
    download: _Download, ranges: Iterable[ByteRange], heads: Iterable[bytes], end: bytes
) -> Iterator[bytes]:
    for at, head in zip(ranges, heads, strict=True):
        yield head
        yield from download.chunks(at)
    yield end


def _content_range(at: ByteRange, version: Version) -> str:
    return f"bytes {at.start}-{at.stop - 1}/{version.byte_size}"


class _FilePart:
    """A range of a file for `wsgi.file_wrapper`.

    gunicorn sends the range from the descriptor. Other servers read it.
    """

    def __init__(self, blob: BlobReader, file: FileIO, at: ByteRange) -> None:
        self._blob = blob
        self._file = file
        self._rest = len(at)
        file.seek(at.start)

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(min(size, self._rest) if size >= 0 else self._rest)
        self._rest -= len(piece)
        return piece

    def close(self) -> None:
        self._blob.close()
