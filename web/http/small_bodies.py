"""Read a small body whole: JSON or a form, within a limit, and not for as long as its sender likes."""

from wsgiref.types import WSGIEnvironment

from shared.body_errors import ContentTooLarge
from web.http.edge import BODY_READ
from web.http.receive_deadlines import BodyReceptions
from web.http.request_bodies import take_gathered

PIECE_BYTES = 16 << 10


def read_small_body(receptions: BodyReceptions, environ: WSGIEnvironment, maximum_bytes: int) -> bytes:
    """Read a request's body to its end.

    Raises ContentTooLarge, UploadTimeout, MalformedRequest, ConcurrencyLimited, PoolExhausted.
    """
    if int(environ.get("CONTENT_LENGTH") or 0) > maximum_bytes:
        raise ContentTooLarge(maximumBytes=maximum_bytes)
    gathered = take_gathered(environ)
    if gathered is not None:
        environ[BODY_READ] = True
        return gathered
    body = bytearray()
    piece = memoryview(bytearray(PIECE_BYTES))
    with receptions.admit(environ) as reception:
        while read := reception.readinto(piece):
            body += piece[:read]
            if len(body) > maximum_bytes:
                raise ContentTooLarge(maximumBytes=maximum_bytes)
    return bytes(body)
