"""Server-sent events: line ends, and bytes that are split anywhere."""

from __future__ import annotations

from typing import Any

import pytest

from quartermaster import ConnectionFailed
from quartermaster._events import EventReader

# Python's splitlines() ends lines at these characters; the format of events does not.
NO_ENDS_OF_LINES = "a\u2028b\u2029c\u0085d"


def read(*pieces: bytes) -> list[Any]:
    """Return the events that a reader yields for these pieces."""
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_in_three_ways_wherever_they_are_cut(end: bytes) -> None:
    stream = end.join(
        [b": a comment", b"", b"id: 1", b'data: {"b":', b"data:2}", b"", b'data: "\xc3\xa9"', b"", b""]
    )
    told: list[Any] = [{"b": 2}, "é"]
    assert read(stream) == told
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == told
    for at in range(len(stream)):
        assert read(stream[:at], b"", stream[at:]) == told


def test_characters_that_python_ends_lines_at_stay_in_the_text() -> None:
    assert read(f'data: "{NO_ENDS_OF_LINES}"\n\n'.encode()) == [NO_ENDS_OF_LINES]


def test_what_came_before_a_broken_event_is_given() -> None:
    events = EventReader().feed(b'data: 1\n\ndata: {"secret":\n\n')
    assert next(events) == 1
    with pytest.raises(ConnectionFailed) as caught:
        next(events)
    # The JSON error would contain the data, which may be confidential.
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
