"""The bytes of a download that ranges and preconditions select."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.files.errors import VersionMismatch
from web.files.ranges import RangeNotSatisfiable, Selection, select_bytes

TAG = '"abc"'
Ranges = list[tuple[int, int]]


def select(method: str = "GET", *, size: int = 100, **headers: str) -> Selection | Ranges:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    selected = select_bytes(method, named, entity_tag=TAG, byte_size=size)
    return selected if isinstance(selected, Selection) else [(at.start, at.stop) for at in selected]


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ("bytes=0-0", [(0, 1)]),
        ("bytes=10-19", [(10, 20)]),
        ("bytes=90-", [(90, 100)]),
        ("bytes=-5", [(95, 100)]),
        ("bytes=-500", [(0, 100)]),
        ("bytes=50-5000", [(50, 100)]),
        ("Bytes= 1-2 , ,4-5", [(1, 3), (4, 6)]),
        ("bytes=90-,0-9", [(90, 100), (0, 10)]),
        ("bytes=0-9,10-19", [(0, 20)]),
        ("bytes=50-60,0-9,5-20", [(0, 21), (50, 61)]),
        ("bytes=0-,-100,0-99", [(0, 100)]),
        ("bytes=0-9,100-", [(0, 10)]),
        ("bytes=0-9,-0", [(0, 10)]),
        ("bytes=5-" + "9" * 20, [(5, 100)]),
        ("bytes=5-" + "9" * 8000, [(5, 100)]),
        ("bytes=-" + "9" * 8000, [(0, 100)]),
        ("bytes=" + "0" * 8000 + "5-9", [(5, 10)]),
    ],
)
def test_ranges_are_read_and_joined_where_they_touch(asked: str, sent: Ranges) -> None:
    assert select(Range=asked) == sent


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-2",
        "bytes=1-2-3",
        "bytes=+1-2",
        "bytes=1 -2",
        "bytes=0-1,x",
        "bytes=0x0-0x5",
        "bytes=\u0660-\u0661",
        "items=0-1",
        "bytes=" + ",".join(f"{n * 3}-{n * 3}" for n in range(17)),
    ],
)
def test_a_malformed_or_excessive_range_is_ignored(asked: str) -> None:
    assert select(Range=asked) is Selection.WHOLE


@pytest.mark.parametrize(
    "asked", ["bytes=100-", "bytes=100-200,300-", "bytes=-0", "bytes=" + "9" * 5000 + "-"]
)
def test_a_range_beyond_the_content_is_refused_with_its_size(asked: str) -> None:
    with pytest.raises(RangeNotSatisfiable) as refusal:
        select(Range=asked)
    assert refusal.value.data == {"byteSize": 100}


@pytest.mark.parametrize("asked", ["bytes=0-", "bytes=-1", "bytes=5-9"])
def test_of_an_empty_content_everything_is_sent(asked: str) -> None:
    assert select(size=0, Range=asked) is Selection.WHOLE


def test_head_knows_no_ranges() -> None:
    assert select("HEAD", Range="bytes=0-1") is Selection.WHOLE
    assert select("HEAD", Range="bytes=500-") is Selection.WHOLE


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (TAG, True),
        (f"W/{TAG}", False),
        ('"other"', False),
        ("Sat, 21 Nov 2026 10:00:00 GMT", False),
        ("abc", False),
        ("", False),
    ],
)
def test_if_range_holds_for_the_same_strong_tag_only(condition: str, *, holds: bool) -> None:
    assert select(Range="bytes=0-1", If_Range=condition) == ([(0, 2)] if holds else Selection.WHOLE)


@pytest.mark.parametrize(
    ("condition", "not_modified"),
    [(TAG, True), (f"W/{TAG}", True), (f'"x", {TAG}', True), ("*", True), ('"x"', False), ("abc", False)],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_if_none_match_compares_weakly(method: str, condition: str, *, not_modified: bool) -> None:
    selected = select(method, If_None_Match=condition, Range="bytes=0-1")
    assert (selected is Selection.NOT_MODIFIED) == not_modified


@pytest.mark.parametrize("condition", [TAG, "*", f'"x",{TAG}'])
def test_if_match_lets_the_same_content_pass(condition: str) -> None:
    assert select(If_Match=condition) is Selection.WHOLE


@pytest.mark.parametrize("condition", [f"W/{TAG}", '"x"', ""])
def test_if_match_refuses_other_content_before_anything_else(condition: str) -> None:
    with pytest.raises(VersionMismatch):
        select(If_Match=condition, If_None_Match=TAG, Range="bytes=500-")


@given(
    st.one_of(st.text(max_size=40), st.from_regex(r"bytes=([0-9]{0,3}-[0-9]{0,3},? ?){1,6}", fullmatch=True))
)
def test_any_ranges_send_no_byte_twice_and_none_outside(asked: str) -> None:
    try:
        selected = select_bytes("GET", {"Range": asked}, entity_tag=TAG, byte_size=100)
    except RangeNotSatisfiable:
        return
    if not isinstance(selected, Selection):
        positions = [position for at in selected for position in range(at.start, at.stop)]
        assert len(positions) == len(set(positions)) > 0
        assert set(positions) <= set(range(100))
