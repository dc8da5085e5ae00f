"""Parse the headers of a multipart body: its boundary, and the name, type and digests of the part `file`.

A name or type is parsed or refused, never guessed. Headers are UTF-8, unfolded, and not repeated. Only file names come
in several forms (RFC 7578 4.2): escaped with backslashes (old curl), with %22 %0D %0A (browsers, requests), or in
`filename*`, which RFC 7578 forbids and several libraries send.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from shared.errors import FieldError, ValidationFailed
from shared.files.errors import FilePartRequired
from shared.files.file_names import clean_file_name
from web.http.requests import MalformedRequest, UnsupportedMediaType

PART_NAME = "file"
MAXIMUM_MEDIA_TYPE_LENGTH = 255
DIGEST_BYTES = 32

_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # a token, RFC 9110 5.6.2
_HEADER = re.compile(rf"({_WORD}):(.*)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PARAMETER = re.compile(rf'[ \t]*;[ \t]*({_WORD})=(?:"((?:[^"\\]|\\.)*)"|([^";\s]*))')
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]")  # RFC 2046, 5.1.1
_MEDIA_TYPE = re.compile(
    rf'({_WORD}/{_WORD})((?:[ \t]*;[ \t]*{_WORD}=(?:"(?:[^"\\]|\\.)*"|{_WORD}))*)[ \t]*;?'
)
_QUOTED_PAIR = re.compile(r'\\(["\\])')
# Browsers escape only quotes and line breaks, so decode only these. Any other `%` belongs to the name.
_BROWSER_ESCAPE = re.compile(r"%(22|0[DdAa])")
_DIGEST = re.compile(r"sha-256=(?::([A-Za-z0-9+/=]*):)?(;.*)?")  # an RFC 8941 byte sequence
_IDENTITY_ENCODINGS = frozenset({"binary", "7bit", "8bit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartHeader:
    """The header of the part `file`.

    `digests` are the SHA-256 values that the client declares for the part's content.
    """

    file_name: str
    media_type: str
    digests: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldHeader:
    """The header of a part that is a form field instead of a file."""

    name: str


def read_boundary(content_type: str) -> bytes:
    """Return the boundary from a request's `Content-Type`. Raises UnsupportedMediaType, MalformedRequest."""
    media_type, _, _ = content_type.partition(";")
    if media_type.strip(" \t").lower() != "multipart/form-data":
        raise UnsupportedMediaType("Send the body as multipart/form-data.")
    boundary = _parameters(content_type[len(media_type) :]).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        raise MalformedRequest(
            "The boundary in Content-Type is missing, or is not 1 to 70 permitted characters."
        )
    return boundary.encode("ascii")


def read_part_header(block: bytes) -> PartHeader:
    """Parse the header of the part `file`.

    Raises MalformedRequest, and FilePartRequired if the part has another name.
    """
    header = read_form_part_header(block)
    if isinstance(header, FieldHeader):
        raise FilePartRequired
    return header


def read_form_part_header(block: bytes) -> PartHeader | FieldHeader:
    """Parse the header of the part `file`, or of a form field. Raises MalformedRequest, FilePartRequired."""
    headers = _header_lines(block)
    disposition = headers.get("content-disposition", "")
    kind, _, _ = disposition.partition(";")
    if kind.strip(" \t").lower() != "form-data":
        raise FilePartRequired
    parameters = _parameters(disposition[len(kind) :])
    if parameters.get("name") != PART_NAME:
        if parameters.keys() & {"filename", "filename*"}:
            raise FilePartRequired
        return FieldHeader(name=parameters.get("name", ""))
    if headers.get("content-transfer-encoding", "binary").lower() not in _IDENTITY_ENCODINGS:
        raise MalformedRequest("A part's Content-Transfer-Encoding must be binary, 8bit or 7bit.")
    return PartHeader(
        file_name=clean_file_name(_file_name(parameters)),
        media_type=_media_type(headers.get("content-type", "")),
        digests=read_digests(headers.get("content-digest", ""), headers.get("repr-digest", "")),
    )


def read_file_headers(disposition: str, content_type: str, repr_digest: str) -> PartHeader:
    """Parse a file's name, type and digests from the headers of a request whose body is the file.

    Raises ValidationFailed, MalformedRequest.
    """
    try:
        # WSGI decodes headers as Latin-1, so encode the header again and decode it as UTF-8.
        disposition = disposition.encode("latin-1").decode("utf-8")
    except UnicodeError:
        raise MalformedRequest("Content-Disposition is not UTF-8.") from None
    kind, _, _ = disposition.partition(";")
    try:
        return PartHeader(
            file_name=clean_file_name(_file_name(_parameters(disposition[len(kind) :]))),
            media_type=_media_type(content_type),
            digests=read_digests(repr_digest),
        )
    except FilePartRequired:
        raise ValidationFailed(
            "Send the file's name in Content-Disposition and its media type in Content-Type.",
            errors=[
                FieldError(location="header", name=name, message="must be given")
                for name in ("Content-Disposition", "Content-Type")
            ],
        ) from None


def read_digests(*headers: str) -> tuple[bytes, ...]:
    """Return each SHA-256 in `Content-Digest` and `Repr-Digest` values (RFC 9530). Raises MalformedRequest."""
    items = [item.strip(" \t") for header in headers for item in header.split(",")]
    return tuple(_digest(item) for item in items if item.startswith("sha-256="))


def _header_lines(block: bytes) -> dict[str, str]:
    try:
        lines = block.decode("utf-8").split("\r\n")
    except UnicodeDecodeError:
        raise MalformedRequest("A part's header is not UTF-8.") from None
    headers: dict[str, str] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None or _CONTROL.search(line):
            raise MalformedRequest("A part's header is malformed.")
        name = match[1].lower()
        if name in headers:
            raise MalformedRequest("A part's header is repeated.")
        headers[name] = match[2].strip(" \t")
    return headers


def _parameters(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while match := _PARAMETER.match(text, position):
        name, quoted, plain = match[1].lower(), match[2], match[3]
        if name in found:
            raise MalformedRequest("A header's parameter is repeated.")
        found[name] = plain if quoted is None else _QUOTED_PAIR.sub(r"\1", quoted)
        position = match.end()
    if text[position:].strip(" \t;"):
        raise MalformedRequest("A header's parameters are malformed.")
    return found


def _file_name(parameters: dict[str, str]) -> str:
    extended = parameters.get("filename*", "")
    charset, separator, rest = extended.partition("'")
    # Accept UTF-8 only. RFC 8187 allows other character sets, but no known client uses them.
    if separator and charset.lower() == "utf-8":
        try:
            name = unquote_to_bytes(rest.partition("'")[2]).decode("utf-8")
        except UnicodeDecodeError:
            raise MalformedRequest("A part's file name is not UTF-8.") from None
    else:
        name = _BROWSER_ESCAPE.sub(lambda match: chr(int(match[1], 16)), parameters.get("filename", ""))
    if not name:
        raise FilePartRequired("The part `file` has no file name.")
    return name


def _media_type(text: str) -> str:
    match = _MEDIA_TYPE.fullmatch(text) if len(text) <= MAXIMUM_MEDIA_TYPE_LENGTH and text.isascii() else None
    if match is None:
        raise FilePartRequired("The part `file` has no media type, or a malformed one.")
    # Lower only type and subtype: parameter values may be case-sensitive.
    return match[1].lower() + match[2]


def _digest(item: str) -> bytes:
    match = _DIGEST.fullmatch(item)
    try:
        # Without `validate`, Python would skip characters that are not in the base64 alphabet.
        digest = base64.b64decode((match and match[1]) or "", validate=True)
    except binascii.Error:
        digest = b""
    if len(digest) != DIGEST_BYTES:
        raise MalformedRequest("A SHA-256 digest must be sent as sha-256=:<44 base64 characters>:.")
    return digest
