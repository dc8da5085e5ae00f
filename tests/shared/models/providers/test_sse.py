"""The parser of server-sent events: any split, any line end, bounded size."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.models.providers.sse import EventTooLarge, SseEvent, SseParser

LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
LINES = st.one_of(
    st.just(b""),
    st.builds(lambda text: b"data: " + text, st.from_regex(rb"[^\r\n]{0,12}", fullmatch=True)),
    st.sampled_from(
        [b"data", b"data:", b"data:x", b"data:  two", b"event: name", b"event:n", b"event", b": comment"]
    ),
    st.sampled_from(
        [b"id: 7", b"retry: 10", b"unknown: field", b"dat", b"datax: y", b":", b"\xef\xbb\xbfdata: bom"]
    ),
)


def parse(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def by_the_standard(lines: list[bytes]) -> list[SseEvent]:
    """The algorithm of the standard, word by word."""
    events: list[SseEvent] = []
    data: list[bytes] = []
    name = ""
    for number, line in enumerate(lines):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line
        if not text:
            if data:
                events.append(SseEvent(name, b"\n".join(data)))
            data, name = [], ""
            continue
        field, _, value = text.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    return events


@settings(deadline=None)
@given(st.lists(st.tuples(LINES, LINE_ENDS), max_size=12), st.data())
def test_any_cut_gives_the_events_of_the_standard(
    lines: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    # A line that ends in CR followed by an empty line that ends in LF would be one CRLF: no such text can be meant.
    joined = b"".join(line + end for line, end in lines).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    stream = b"".join(line + end for line, end in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected = by_the_standard(joined.split(b"\n")[:-1])
    assert parse(*pieces) == parse(stream) == expected


@settings(deadline=None)
@given(st.binary(max_size=200), st.data())
def test_any_bytes_cut_anywhere_give_the_same_events(stream: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(stream)))
    assert parse(stream[:cut], stream[cut:]) == parse(stream) == parse(*(bytes([byte]) for byte in stream))


def test_lines_of_data_are_joined_and_names_belong_to_one_event() -> None:
    assert parse(b"event: a\ndata: 1\ndata: 2\n\ndata: 3\n\n") == [SseEvent("a", b"1\n2"), SseEvent("", b"3")]


def test_comments_and_events_without_data_give_nothing() -> None:
    assert parse(b": keep-alive\n\nevent: lonely\n\n: again\n\n") == []


def test_an_event_waits_for_its_blank_line_or_for_the_end() -> None:
    parser = SseParser()
    assert parser.feed(b'data: {"a":1}\n') == []
    assert parser.finish() == [SseEvent("", b'{"a":1}')]
    assert parser.finish() == []


def feed_in_pieces(parser: SseParser, line: bytes) -> None:
    for start in range(0, len(line), 100):
        parser.feed(line[start : start + 100])


@pytest.mark.parametrize(
    "line", [b"data: " + b"x" * 2000 + b"\n", b"data: " + b"x" * 2000, b": " + b"x" * 2000]
)
def test_an_event_has_a_largest_size(line: bytes) -> None:
    parser = SseParser(max_event_bytes=1000)
    with pytest.raises(EventTooLarge):
        feed_in_pieces(parser, line)


def test_many_small_lines_of_one_event_have_a_largest_size_together() -> None:
    parser = SseParser(max_event_bytes=1000)
    with pytest.raises(EventTooLarge):
        parser.feed(b"data: 0123456789\n" * 100)


def test_many_events_in_a_row_have_no_largest_size() -> None:
    parser = SseParser(max_event_bytes=1000)
    assert len(parser.feed(b"data: 0123456789\n\n" * 1000)) == 1000
