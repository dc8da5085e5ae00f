"""How content is presented to a browser: it is never executed, and embedded in a page only with a read grant.

A read grant is made to be passed on: any page may embed its content, and any script may read it. The URL of
content that needs a credential is for the owner's programs. `?disposition=inline` shows images (except SVG),
audio, video, PDF and plain text. All other content is an attachment. The sandbox has no origin and executes
nothing.
"""

import base64
from enum import Enum

from werkzeug.datastructures import Headers

from shared.files.file_names import content_disposition
from shared.files.resources import Version

CORS_METHODS = "GET, HEAD"
CORS_REQUEST_HEADERS = "If-Match, If-None-Match, If-Range, Range, Traceparent, X-Request-Id"
CORS_MAX_AGE_SECONDS = 7200
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "Accept-Ranges, Content-Disposition, Content-Length, Content-Range, ETag,"
    " Repr-Digest, Retry-After, X-Request-Id",
}
_PROTECTION = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
    "Cross-Origin-Resource-Policy": "same-site",
    "Cross-Origin-Opener-Policy": "same-origin",
}
# The page that a browser builds around a picture or a film needs a style and the URL itself. Any page may
# frame it.
_INLINE_POLICY = (
    "sandbox; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline';"
    " frame-ancestors *"
)
DESCRIBED = {
    "Accept-Ranges": "`bytes`: ranges are supported.",
    "Content-Disposition": "The file's name, and whether a browser may show it.",
    "Content-Length": "The number of bytes sent.",
    "Content-Range": "The range sent and the total size, with 206.",
    "ETag": "The content's SHA-256, for conditional requests.",
    "Repr-Digest": "The SHA-256 of the whole content (RFC 9530).",
}
"""The headers of a content response, for the API's description."""
_OPAQUE_TYPE = "application/octet-stream"
_ACTIVE_TYPES = frozenset(
    {
        "text/html",
        "text/xml",
        "text/xsl",
        "text/vbscript",
        "application/xml",
        "application/x-shockwave-flash",
        "message/rfc822",
        "multipart/x-mixed-replace",
    }
)
_SCRIPTS = ("javascript", "ecmascript", "jscript", "livescript")
_PASSIVE_TYPES = frozenset({"application/pdf", "text/plain"})
_PASSIVE_KINDS = frozenset({"image", "audio", "video"})


class Presentation(Enum):
    """The audience of content: the owner's programs, or holders of a link who save or view the content."""

    PRIVATE = "private"
    SHARED = "shared"
    SHARED_INLINE = "shared inline"


def protect(headers: Headers, version: Version, presentation: Presentation) -> None:
    """Write the headers that every response about a version has, including a response without content."""
    headers.extend(_PROTECTION)
    if presentation is Presentation.PRIVATE:
        headers["Cache-Control"] = "private, no-cache"
        return
    headers["Cache-Control"] = "private, no-store"
    allow_any_page(headers)
    if _is_inline(version, presentation):
        headers["Content-Security-Policy"] = _INLINE_POLICY


def allow_any_page(headers: Headers) -> None:
    """Allow pages of every origin to embed and read the content of a grant, and the errors of such a request."""
    headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    headers.extend(_CORS)


def describe(headers: Headers, version: Version, presentation: Presentation) -> None:
    """Write the headers that describe a version's content."""
    headers["Content-Type"] = _harmless(version.media_type)
    headers["Content-Disposition"] = content_disposition(
        version.file_name, "inline" if _is_inline(version, presentation) else "attachment"
    )
    headers["Accept-Ranges"] = "bytes"
    # By RFC 9530 the digest covers the whole content, even when only a range is sent.
    headers["Repr-Digest"] = f"sha-256=:{base64.b64encode(version.content_sha256).decode()}:"


def _is_inline(version: Version, presentation: Presentation) -> bool:
    return presentation is Presentation.SHARED_INLINE and _is_passive(version.media_type)


def _is_passive(media_type: str) -> bool:
    essence = _essence(media_type)
    kind, _, name = essence.partition("/")
    if kind in _PASSIVE_KINDS:
        # Do not show SVG inline: an SVG image can contain scripts.
        return "svg" not in name and "xml" not in name
    return essence in _PASSIVE_TYPES


def _harmless(media_type: str) -> str:
    """Return the declared media type.

    If a browser might execute such content, return `application/octet-stream`.
    """
    essence = _essence(media_type)
    is_active = (
        essence in _ACTIVE_TYPES or essence.endswith("+xml") or any(word in essence for word in _SCRIPTS)
    )
    return _OPAQUE_TYPE if is_active else media_type


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()
