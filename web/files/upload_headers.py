"""The headers of resumable uploads, and what they say of content that is to come."""

import re

from flask import Request

from shared.files.errors import InconsistentUploadLength
from shared.files.resumable.uploads import DeclaredContent
from web.http.part_headers import read_file_headers
from web.http.requests import MalformedRequest, UnsupportedMediaType

MEDIA_TYPE = "application/partial-upload"
BEGINNING_HEADERS = {
    "Upload-Complete": "`?0` to begin a resumable upload; absent, or `?1`, for one multipart request.",
    "Upload-Length": "With `Upload-Complete: ?0`: the same as byteSize, if it is sent.",
    "Content-Disposition": "With `Upload-Complete: ?0`: the file's name, as `attachment; filename*=UTF-8''…`.",
    "Repr-Digest": "The SHA-256 of the whole content (RFC 9530), compared when all of it is there.",
}
APPENDING_HEADERS = {
    "Upload-Offset": "Where this content begins: where the upload ends so far.",
    "Upload-Complete": "`?1` if this is the last of the content, else `?0`.",
    "Upload-Length": "The same as byteSize, if it is sent.",
    "Prefer": "`respond-async`, or `wait=N`: how long the last answer may wait (RFC 7240).",
}
DIGEST_HEADER = {"Content-Digest": "The SHA-256 of the body (RFC 9530), compared when all of it is there."}
PROGRESS_HEADERS = {
    "Preference-Applied": "The preference that was followed.",
    "Upload-Complete": "Whether all content of a resumable upload is there.",
    "Upload-Offset": "How many bytes of a resumable upload are kept.",
    "Upload-Length": "How many bytes a resumable upload is to have.",
    "Upload-Limit": "How long and how large a resumable upload may be.",
}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
_FLAGS = {"?0": False, "?1": True}
_FORM = "multipart/form-data"


def is_resumable(http: Request) -> bool:
    """Tell whether a request to write begins a resumable upload; a whole one may say that it is (`?1`)."""
    if "Upload-Complete" not in http.headers:
        return False
    return not (read_flag(http) and http.mimetype == _FORM)


def read_declared_content(http: Request) -> DeclaredContent:
    """Read the name, type and digest of content that is to come. Raises ValidationFailed, MalformedRequest."""
    header = read_file_headers(
        http.headers.get("Content-Disposition", ""),
        http.headers.get("Content-Type", ""),
        http.headers.get("Repr-Digest", ""),
    )
    if len(set(header.digests)) > 1:
        raise MalformedRequest("Repr-Digest names two SHA-256 digests.")
    digest = header.digests[0] if header.digests else None
    return DeclaredContent(file_name=header.file_name, media_type=header.media_type, sha256=digest)


def refuse_content(http: Request) -> None:
    """Raise UnsupportedMediaType unless this is a careful beginning: no content, and more to come."""
    if http.mimetype == _FORM:
        raise UnsupportedMediaType(
            "A multipart form comes in one request: leave Upload-Complete out, or send ?1."
        )
    if read_flag(http) or http.content_length or "Transfer-Encoding" in http.headers:
        raise UnsupportedMediaType(
            "Begin a resumable upload with Upload-Complete: ?0 and no content; send content by PATCH to its Location."
        )


def check_length(http: Request, size: int) -> None:
    """Raise InconsistentUploadLength if `Upload-Length` is sent and is another than the size."""
    length = read_number(http, "Upload-Length")
    if length not in (None, size):
        raise InconsistentUploadLength("Upload-Length differs from byteSize.")


def read_flag(http: Request) -> bool:
    """Read `Upload-Complete`. Raises MalformedRequest."""
    flag = _FLAGS.get(http.headers.get("Upload-Complete", "").strip())
    if flag is None:
        raise MalformedRequest("Upload-Complete must be ?0 or ?1.")
    return flag


def read_number(http: Request, name: str, *, is_required: bool = False) -> int | None:
    """Read a header that is a number of bytes. Raises MalformedRequest."""
    value = http.headers.get(name, "").strip()
    if not value and not is_required:
        return None
    if not _NUMBER.fullmatch(value):
        raise MalformedRequest(f"{name} must be a number of bytes.")
    return int(value)
