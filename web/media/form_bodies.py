"""Receive a form with the part `file` and a few short text fields, in constant memory.

The rules of `web/http/multipart.py` apply: content counts only when the whole body has arrived.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256

from shared.errors import FieldError
from shared.files.errors import DigestMismatch, FilePartRequired
from shared.files.resources import ReceivedContent
from shared.files.staging import Sink
from shared.media.importing.content_signatures import HEAD_BYTES
from web.http.multipart import FRAMING_BYTES, Body, PartContent, PartParser, pieces
from web.http.part_headers import FieldHeader, PartHeader, read_boundary, read_digests, read_form_part_header
from web.http.requests import DuplicateParameter, MalformedRequest, UnknownParameter

MAXIMUM_FIELD_BYTES = 4 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedForm:
    """A complete form. `head` contains the first HEAD_BYTES of the file's content."""

    fields: Mapping[str, str]
    content: ReceivedContent
    head: bytes


def receive_form(
    body: Body,
    content_type: str,
    *,
    names: Collection[str],
    maximum_bytes: int,
    sink: Sink,
    body_digests: tuple[str, ...] = (),
) -> ReceivedForm:
    """Receive a form with the fields in `names`. Write the file's content to the sink.

    The sink is opened when the header of the file part is known. Raises the errors of `receive_file_part`,
    UnknownParameter for other fields, and DuplicateParameter.
    """
    parser = FormParser(read_boundary(content_type), names)
    expected_digests = read_digests(*body_digests)
    whole = sha256() if expected_digests else None
    keeper = _HeadKeeper(sink)
    with PartContent(None, maximum_bytes, keeper) as content:
        fields = _Fields(content)
        for piece, size in pieces(body, maximum_bytes + FRAMING_BYTES):
            if whole:
                whole.update(memoryview(piece)[:size])
            for event in parser.receive(piece, size):
                fields.take(event)
        parser.finish()
        # The request's digest covers the framing too, so check it here. PartContent checks the digest of the
        # file part.
        if whole and any(whole.digest() != digest for digest in expected_digests):
            raise DigestMismatch("The body's digest differs from the one in the request's header.")
        return ReceivedForm(fields=fields.finish(), content=content.finish(), head=bytes(keeper.head))


class FormParser(PartParser[PartHeader | FieldHeader]):
    """Parses a body with exactly one part `file` and each allowed field at most once."""

    def __init__(self, boundary: bytes, names: Collection[str]) -> None:
        super().__init__(boundary)
        self._names = names
        self._seen: set[str] = set()
        self._has_file = False

    def _begin_part(self, block: bytes) -> PartHeader | FieldHeader:
        header = read_form_part_header(block)
        if isinstance(header, PartHeader):
            if self._has_file:
                raise FilePartRequired
            self._has_file = True
            return header
        # Refuse unknown and repeated fields: if a misspelled field were ignored, its value would be lost
        # without notice.
        if header.name not in self._names:
            raise UnknownParameter(errors=[_wrong(header.name, "is not a field of this form")])
        if header.name in self._seen:
            raise DuplicateParameter(errors=[_wrong(header.name, "was sent more than once")])
        self._seen.add(header.name)
        return header

    def _check_boundary(self, *, is_last: bool) -> None:
        if is_last and not self._has_file:
            raise FilePartRequired


class _Fields:
    """Collects the values of text fields, and passes the events of the file part on."""

    def __init__(self, content: PartContent) -> None:
        self._content = content
        self._field: str | None = None
        self._values: dict[str, bytearray] = {}

    def take(self, event: PartHeader | FieldHeader | memoryview) -> None:
        if isinstance(event, FieldHeader):
            self._field = event.name
            self._values[event.name] = bytearray()
        elif isinstance(event, PartHeader):
            self._field = None
            self._content.take(event)
        elif self._field is None:
            self._content.take(event)
        else:
            self._keep(self._field, event)

    def finish(self) -> dict[str, str]:
        try:
            return {name: value.decode("utf-8") for name, value in self._values.items()}
        except UnicodeDecodeError:
            raise MalformedRequest("A field of the form is not UTF-8.") from None

    def _keep(self, name: str, piece: memoryview) -> None:
        value = self._values[name]
        # Check while receiving: text fields are kept in memory, unlike the file.
        if len(value) + len(piece) > MAXIMUM_FIELD_BYTES:
            message = f"is longer than {MAXIMUM_FIELD_BYTES} bytes"
            raise MalformedRequest("A field of the form is too long.", errors=[_wrong(name, message)])
        value += piece


class _HeadKeeper:
    """A sink that records the first bytes of the content and forwards all bytes to another sink."""

    def __init__(self, sink: Sink) -> None:
        self.head = bytearray()
        self._sink = sink

    def open(self) -> None:
        self._sink.open()

    def write(self, chunk: bytes | memoryview, /) -> None:
        if len(self.head) < HEAD_BYTES:
            self.head += chunk[: HEAD_BYTES - len(self.head)]
        self._sink.write(chunk)


def _wrong(name: str, message: str) -> FieldError:
    return FieldError(location="body", name=name, message=message)
