"""Bounded fuzzing of upload parsers: any input yields a refusal with a code, or exactly the content."""

import hashlib
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.errors import DomainError, Kind
from tests.support.files.bodies import BOUNDARY, CONTENT_TYPE, HEADER, Kept, Pieces, multipart
from web.http.multipart import receive_file_part
from web.http.part_headers import read_boundary, read_digests, read_part_header

REFUSALS = {Kind.MALFORMED, Kind.INVALID, Kind.TOO_LARGE, Kind.UNSUPPORTED_MEDIA_TYPE}
SHARDS = [
    b"\r\n",
    b"--",
    b"\r",
    b"\n",
    BOUNDARY,
    b"--" + BOUNDARY,
    HEADER,
    b"\r\n\r\n",
    b'"',
    b";",
    b"\\",
    b"=",
    b"\0",
    b"x",
]
fragments = st.lists(st.sampled_from(SHARDS) | st.binary(max_size=30), max_size=20).map(b"".join)
piece_sizes = st.lists(st.integers(1, 60), max_size=12)


def receive(body: bytes, sizes: list[int]) -> bytes | Kind:
    """Parse a body in pieces. Return its content, or its refusal."""
    kept = Kept()
    try:
        part = receive_file_part(
            Pieces(body, *sizes),
            CONTENT_TYPE,
            byte_size=None,
            maximum_bytes=1 << 20,
            sink=kept,
        )
    except DomainError as refusal:
        return refusal.kind
    assert part.sha256 == hashlib.sha256(kept.content).digest()
    assert part.byte_size == len(kept.content)
    return kept.content


@settings(max_examples=300, deadline=None)
@given(fragments, piece_sizes)
def test_any_bytes_are_refused_or_received_the_same_however_they_are_divided(
    body: bytes, sizes: list[int]
) -> None:
    received = receive(body, sizes)
    whole = receive(body, [])
    assert received == whole or {received, whole} <= REFUSALS


@settings(max_examples=300, deadline=None)
@given(fragments, piece_sizes)
def test_any_content_without_its_boundary_is_received_exactly(content: bytes, sizes: list[int]) -> None:
    if b"\r\n--" + BOUNDARY not in content:
        assert receive(multipart(content), sizes) == content


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_body_with_any_one_byte_changed_is_refused_or_whole(data: st.DataObject) -> None:
    body = bytearray(multipart(b"some content"))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    content = receive(bytes(body), data.draw(piece_sizes))
    assert content in REFUSALS or len(content) == len(b"some content")


@settings(max_examples=500, deadline=None)
@given(
    fragments
    | st.text(max_size=200).map(lambda text: HEADER + b"\r\nX: " + text.encode("utf-8", "surrogatepass"))
)
def test_any_part_header_is_refused_or_names_a_file(block: bytes) -> None:
    header = outcome(read_part_header, block)
    assert header in REFUSALS or (header.file_name and "/" in header.media_type)


@settings(max_examples=500, deadline=None)
@given(st.text(max_size=100) | st.text(max_size=60).map(lambda text: f"multipart/form-data; {text}"))
def test_any_header_value_is_refused_or_understood(value: str) -> None:
    for read, answer in ((read_boundary, bytes), (read_digests, tuple)):
        result = outcome(read, value)
        assert result in REFUSALS or isinstance(result, answer)


def outcome(read: Callable[[Any], Any], value: Any) -> Any:
    """Return a function's result, or the kind of its refusal."""
    try:
        return read(value)
    except DomainError as refusal:
        return refusal.kind
