"""Receive the one part of an upload: parse a `multipart/form-data` body into name, type, size, digest and content.

`FilePartParser` knows the format (RFC 2046 5.1, RFC 7578) and no connection: bytes go in, events come out.
The parser protects the rule that an incomplete body is never stored. The closing boundary must have arrived,
there must be no second part, and the size of everything around the content is limited. `receive_file_part`
feeds the parser, and counts, hashes and writes the content, in constant memory for any size.

`receive_deadlines` reads from the connection and sets the deadlines. After an error, the caller discards the
sink.
"""

import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Generic, Protocol, Self, TypeVar

from shared.files.errors import ByteSizeMismatch, ContentTooLarge, DigestMismatch, FilePartRequired
from shared.files.resources import ReceivedContent
from shared.files.staging import Sink
from web.http.content_hash import OUTSTANDING_PIECES, ContentHash
from web.http.part_headers import PartHeader, read_boundary, read_digests, read_part_header
from web.http.requests import MalformedRequest

PIECE_BYTES = 512 << 10
MAXIMUM_HEADER_BYTES = 8 << 10
MAXIMUM_PREAMBLE_BYTES = 1 << 10
MAXIMUM_EPILOGUE_BYTES = 1 << 10
FRAMING_BYTES = 16 << 10  # More bytes than the limits above and two boundaries need together.

_AFTER_BOUNDARY = re.compile(rb"(--)|[ \t]{0,256}(?=\r\n)")
_AFTER_BOUNDARY_SO_FAR = re.compile(rb"-?|[ \t]{0,256}\r?")
_EPILOGUE = re.compile(rb"[ \t]*(?:\r\n.*)?", re.DOTALL)

HeaderType = TypeVar("HeaderType")
_State = Callable[[bytes | bytearray, int, int], "tuple[int, HeaderType | memoryview | None]"]


class Body(Protocol):
    """Source of the body's bytes."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Write the next bytes to the start of the buffer. Return their number, or 0 at the end of the body."""


def receive_file_part(
    body: Body,
    content_type: str,
    *,
    byte_size: int | None,
    maximum_bytes: int,
    sink: Sink,
    body_digests: tuple[str, ...] = (),
) -> ReceivedContent:
    """Receive the part `file` into the sink. The sink is opened once the part's header is known.

    `byte_size` is the announced size, or None. `body_digests` are the request's `Content-Digest` and
    `Repr-Digest`. By RFC 9530 these cover the whole body, while the digests in the part's header cover the
    content. After an error the sink holds incomplete content, and the caller must discard it.

    Raises UnsupportedMediaType, ContentTooLarge, MalformedRequest, FilePartRequired, ByteSizeMismatch,
    DigestMismatch, and the errors of the body and the sink.
    """
    parser = FilePartParser(read_boundary(content_type))
    # Check before the first byte is read: the client then learns at once that the file is too large.
    if byte_size is not None and byte_size > maximum_bytes:
        raise ContentTooLarge(maximumBytes=maximum_bytes)
    expected_digests = read_digests(*body_digests)
    # A second hash costs as much as the first, so hash the whole body only if the client sent a digest of it.
    whole = sha256() if expected_digests else None
    with PartContent(byte_size, maximum_bytes, sink) as content:
        for piece, size in pieces(body, (maximum_bytes if byte_size is None else byte_size) + FRAMING_BYTES):
            if whole:
                whole.update(memoryview(piece)[:size])
            for event in parser.receive(piece, size):
                content.take(event)
        parser.finish()
        if whole and any(whole.digest() != digest for digest in expected_digests):
            raise DigestMismatch("The body's digest differs from the one in the request's header.")
        return content.finish()


class PartParser(Generic[HeaderType]):
    """Parses a body's bytes into events: a part's header, then its content as memoryviews. Call `finish` at the end.

    A subclass decides which parts are allowed, and which of their headers are parsed.
    """

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        # Start as if a line break had been received: the first delimiter may begin the body without one.
        self._held = b"\r\n"
        self._state: _State[HeaderType] = self._read_preamble

    def receive(self, piece: bytes | bytearray, size: int) -> Iterator[HeaderType | memoryview]:
        """Parse the first `size` bytes of a piece.

        The yielded views refer to the piece, so use them before the piece changes. Raises MalformedRequest,
        FilePartRequired.
        """
        position, end = 0, size
        if self._held:
            piece, end = self._held + piece[:size], len(self._held) + size
            self._held = b""
        while position < end:
            position, event = self._state(piece, position, end)
            if event is not None:
                yield event

    def finish(self) -> None:
        """Check that the body is complete. Raises MalformedRequest."""
        if self._state != self._read_epilogue:
            raise MalformedRequest("The body ends before its closing boundary.")
        if not _EPILOGUE.fullmatch(self._held):
            raise MalformedRequest("The closing boundary must be alone on its line.")

    def _begin_part(self, block: bytes) -> HeaderType:
        """Read a part's header lines. Raises MalformedRequest, FilePartRequired."""
        raise NotImplementedError

    def _check_boundary(self, *, is_last: bool) -> None:
        """Check that the body may end here, or that another part may follow. Raises FilePartRequired."""
        raise NotImplementedError

    # Each method below parses data[position:end] in one state. It returns the position where the next state
    # begins, and an event or None.

    def _read_preamble(self, data: bytes | bytearray, position: int, end: int) -> tuple[int, None]:
        found = data.find(self._delimiter, position, end)
        if (end if found < 0 else found) - position > MAXIMUM_PREAMBLE_BYTES + len(self._delimiter):
            raise MalformedRequest("The body does not begin with its boundary.")
        if found < 0:
            return self._hold(data, position, end)
        self._state = self._read_rest_of_boundary
        return found + len(self._delimiter), None

    def _read_rest_of_boundary(self, data: bytes | bytearray, position: int, end: int) -> tuple[int, None]:
        match = _AFTER_BOUNDARY.match(data, position, end)
        if match is None:
            # By RFC 2046 any line that starts with a boundary is a delimiter, so content cannot contain such
            # a line. Refuse as soon as no further byte could make the line a valid delimiter.
            if not _AFTER_BOUNDARY_SO_FAR.fullmatch(data, position, end):
                raise MalformedRequest("A boundary must be alone on its line.")
            return self._hold(data, position, end)
        self._check_boundary(is_last=bool(match[1]))
        self._state = self._read_epilogue if match[1] else self._read_header
        return match.end(), None

    def _read_header(self, data: bytes | bytearray, position: int, end: int) -> tuple[int, HeaderType | None]:
        found = data.find(b"\r\n\r\n", position, end)
        if (end if found < 0 else found) - position > MAXIMUM_HEADER_BYTES:
            raise MalformedRequest("A part's header is longer than 8 KiB.")
        if found < 0:
            return self._hold(data, position, end)
        # A part without a header has no name, so it cannot be `file`.
        if found == position:
            raise FilePartRequired
        header = self._begin_part(bytes(data[position + 2 : found]))
        self._state = self._read_content
        return found + 4, header

    def _read_content(
        self, data: bytes | bytearray, position: int, end: int
    ) -> tuple[int, memoryview | None]:
        found = data.find(self._delimiter, position, end)
        if found >= 0:
            self._state = self._read_rest_of_boundary
            after = found + len(self._delimiter)
        else:
            found = self._possible_delimiter(data, position, end)
            after, _ = self._hold(data, found, end)
        return after, memoryview(data)[position:found] if found > position else None

    def _read_epilogue(self, data: bytes | bytearray, position: int, end: int) -> tuple[int, None]:
        if end - position > MAXIMUM_EPILOGUE_BYTES:
            raise MalformedRequest("More than 1 KiB follows the closing boundary.")
        return self._hold(data, position, end)

    def _hold(self, data: bytes | bytearray, position: int, end: int) -> tuple[int, None]:
        """Store bytes that cannot be parsed yet, and prepend them to the next piece."""
        self._held = bytes(data[position:end])
        return end, None

    def _possible_delimiter(self, data: bytes | bytearray, position: int, end: int) -> int:
        """Return where an incomplete delimiter may start at the end of the data, or `end` if there is none."""
        # Only a suffix that starts with CR can begin a delimiter, so all bytes before the suffix are content.
        found = data.find(b"\r", max(position, end - len(self._delimiter) + 1), end)
        while found >= 0 and not self._delimiter.startswith(data[found:end]):
            found = data.find(b"\r", found + 1, end)
        return end if found < 0 else found


class FilePartParser(PartParser[PartHeader]):
    """Parses a body that consists of the part `file` and nothing else."""

    _has_part = False

    def _begin_part(self, block: bytes) -> PartHeader:
        header = read_part_header(block)
        self._has_part = True
        return header

    def _check_boundary(self, *, is_last: bool) -> None:
        if is_last is not self._has_part:
            raise FilePartRequired


class PartContent:
    """Counts, hashes and writes content as it arrives."""

    def __init__(self, byte_size: int | None, maximum_bytes: int, sink: Sink) -> None:
        self._byte_size = byte_size
        self._maximum_bytes = maximum_bytes
        self._sink = sink
        self._header: PartHeader | None = None
        self._received_bytes = 0
        self._hash = ContentHash()

    def take(self, event: PartHeader | memoryview) -> None:
        """Handle an event of the parser. Raises ContentTooLarge, ByteSizeMismatch, and the sink's errors."""
        if isinstance(event, PartHeader):
            self._header = event
            self._sink.open()
            return
        self._received_bytes += len(event)
        if self._byte_size is None and self._received_bytes > self._maximum_bytes:
            raise ContentTooLarge(maximumBytes=self._maximum_bytes)
        if self._byte_size is not None and self._received_bytes > self._byte_size:
            raise ByteSizeMismatch(f"The content is longer than byteSize={self._byte_size}.")
        self._hash.update(event)
        self._sink.write(event)

    def finish(self) -> ReceivedContent:
        """Return the content that was received, once it is complete.

        Raises FilePartRequired, ByteSizeMismatch, DigestMismatch.
        """
        if self._header is None:
            raise FilePartRequired
        if self._byte_size not in (None, self._received_bytes):
            raise ByteSizeMismatch(
                f"The content has {self._received_bytes} bytes, not byteSize={self._byte_size}."
            )
        digest = self._hash.digest()
        if any(digest != claimed for claimed in self._header.digests):
            raise DigestMismatch("The content's digest differs from the one in its part's header.")
        return ReceivedContent(
            file_name=self._header.file_name,
            media_type=self._header.media_type,
            byte_size=self._received_bytes,
            sha256=digest,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hash.close()


def pieces(body: Body, expected_bytes: int) -> Iterator[tuple[bytearray, int]]:
    """Read a body into a few buffers that are reused in turn. Yield each buffer with its number of bytes.

    A buffer does not change until OUTSTANDING_PIECES further pieces have been added to the hash.
    """
    buffers: list[bytearray] = []
    count = 0
    while True:
        if len(buffers) <= OUTSTANDING_PIECES:
            buffers.append(bytearray(min(PIECE_BYTES, expected_bytes)))
        buffer = buffers[count % (OUTSTANDING_PIECES + 1)]
        size = _fill(body, buffer)
        if size:
            yield buffer, size
        # `_fill` stops early only at the end of the body, so this piece is the last.
        if size < len(buffer):
            return
        count += 1


def _fill(body: Body, buffer: bytearray) -> int:
    view = memoryview(buffer)
    filled = 0
    while filled < len(view):
        read = body.readinto(view[filled:])
        if not read:
            break
        filled += read
    return filled
