"""Read a small body whole: JSON or a form, within a limit, and not for as long as its sender likes."""

from __future__ import annotations

from wsgiref.types import WSGIEnvironment

from shared.files.body_errors import ContentTooLarge
from web.files.slow_senders import BodyReceptions

PIECE_BYTES = 16 << 10


def read_small_body(receptions: BodyReceptions, environ: WSGIEnvironment, maximum_bytes: int) -> bytes:
    """Read a request's body to its end.

    Raises ContentTooLarge, UploadTimeout, Unavailable when too many bodies are being received, MalformedRequest.
    """
    if int(environ.get("CONTENT_LENGTH") or 0) > maximum_bytes:
        raise ContentTooLarge(maximumBytes=maximum_bytes)
    body = bytearray()
    piece = memoryview(bytearray(PIECE_BYTES))
    with receptions.admit(environ) as reception:
        while read := reception.readinto(piece):
            body += piece[:read]
            if len(body) > maximum_bytes:
                raise ContentTooLarge(maximumBytes=maximum_bytes)
    return bytes(body)
