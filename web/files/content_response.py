"""The answer to a download: one exact version, whole or in ranges.

The rule it protects: the bytes sent are those the headers announce. A file of another length than recorded is refused
before the first byte, and a source that breaks off ends the connection, never a shorter answer that looks complete.
A local file leaves by sendfile where the server can, or by the front proxy where one is configured.

Left to others: whether the caller may have the version (`shared.files`), where its bytes lie (the blob store), what a
browser may do with them (`presentation`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from io import FileIO
from typing import IO, cast
from wsgiref.types import WSGIEnvironment

from flask import Response
from werkzeug.wsgi import wrap_file

from shared.files.blobs.base import BlobDamaged, BlobReader
from shared.files.resources import Version
from web.files.presentation import Presentation, describe, protect
from web.files.ranges import ByteRange, Selection, select_bytes

BLOCK_BYTES = 256 << 10
VERIFIED_BYTES = 128 << 10

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
) -> Response:
    """Answer a GET or HEAD with a version's content; closes the blob when the answer is sent, or at once on any error.

    With a `proxy_prefix` a local file is left to the front proxy, which then sees to ranges itself (X-Accel-Redirect).
    Raises VersionMismatch, RangeNotSatisfiable, BlobDamaged, and what the blob raises.
    """
    try:
        return _respond(environ, version, blob, presentation, proxy_prefix)
    except BaseException:
        blob.close()
        raise


def _respond(
    environ: WSGIEnvironment,
    version: Version,
    blob: BlobReader,
    presentation: Presentation,
    proxy_prefix: str | None,
) -> Response:
    entity_tag = f'"{version.content_sha256.hex()}"'
    response = Response(headers={"ETag": entity_tag, "Vary": "Authorization"})
    protect(response.headers, version, presentation)
    conditions = {name: environ[variable] for name, variable in _CONDITIONS.items() if variable in environ}
    method = environ["REQUEST_METHOD"]
    selected = select_bytes(method, conditions, entity_tag=entity_tag, byte_size=version.byte_size)
    if selected is Selection.NOT_MODIFIED:
        response.status_code = HTTPStatus.NOT_MODIFIED
        blob.close()
        return response
    describe(response.headers, version, presentation)
    if proxy_prefix is not None and blob.fixed_path is not None:
        response.headers["X-Accel-Redirect"] = f"{proxy_prefix.rstrip('/')}/{blob.fixed_path}"
        blob.close()
        return response
    _refuse_damaged(blob.file, version)
    ranges = [ByteRange(0, version.byte_size)] if isinstance(selected, Selection) else selected
    if not isinstance(selected, Selection):
        response.status_code = HTTPStatus.PARTIAL_CONTENT
    if len(ranges) > 1:
        return _send_parts(response, blob, ranges, version)
    return _send_range(response, environ, blob, ranges[0], version)


def _refuse_damaged(file: FileIO | None, version: Version) -> None:
    if file is None:
        return
    # With fewer bytes than announced the client would take the beginning of the next answer for the rest.
    if os.fstat(file.fileno()).st_size != version.byte_size:
        raise BlobDamaged
    # What is soon read is compared at every read; the rest is left to the scrub.
    if version.byte_size <= VERIFIED_BYTES:
        content = os.pread(file.fileno(), version.byte_size, 0)
        if hashlib.sha256(content).digest() != version.content_sha256:
            raise BlobDamaged


def _send_range(
    response: Response, environ: WSGIEnvironment, blob: BlobReader, at: ByteRange, version: Version
) -> Response:
    response.content_length = len(at)
    if response.status_code == HTTPStatus.PARTIAL_CONTENT:
        response.headers["Content-Range"] = _content_range(at, version)
    if environ["REQUEST_METHOD"] == "HEAD" or not len(at):
        blob.close()
    elif blob.file is not None:
        response.response = wrap_file(environ, cast("IO[bytes]", _FilePart(blob, blob.file, at)), BLOCK_BYTES)
        response.direct_passthrough = True
    else:
        response.response = blob.chunks(at.start, at.stop)
        response.call_on_close(blob.close)
    return response


def _send_parts(
    response: Response, blob: BlobReader, ranges: Sequence[ByteRange], version: Version
) -> Response:
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
    response.response = _parts(blob, ranges, pieces, end)
    response.call_on_close(blob.close)
    return response


def _parts(
    blob: BlobReader, ranges: Iterable[ByteRange], heads: Iterable[bytes], end: bytes
) -> Iterator[bytes]:
    for at, head in zip(ranges, heads, strict=True):
        yield head
        yield from blob.chunks(at.start, at.stop)
    yield end


def _content_range(at: ByteRange, version: Version) -> str:
    return f"bytes {at.start}-{at.stop - 1}/{version.byte_size}"


class _FilePart:
    """A range of a file for `wsgi.file_wrapper`: gunicorn sends it from the descriptor, other servers read it."""

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
