"""What an agent elsewhere says is read to a bounded depth."""

import pytest

from shared.a2a.remote.errors import ResponseInvalid
from shared.a2a.remote.response_parser import MAXIMUM_DEPTH, read_document


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_the_depth_of_an_answer_is_bounded_to_the_level(opening: str, closing: str) -> None:
    assert MAXIMUM_DEPTH == 64

    def answer(depth: int) -> bytes:
        return (opening * depth + "1" + closing * depth).encode()

    read_document(answer(64))
    for depth in (65, 100_000):
        with pytest.raises(ResponseInvalid):
            read_document(answer(depth))


@pytest.mark.parametrize("raw", [b"", b"{", b'"\\ud800"', b"\xff"])
def test_what_is_no_storable_json_is_invalid(raw: bytes) -> None:
    with pytest.raises(ResponseInvalid):
        read_document(raw)
