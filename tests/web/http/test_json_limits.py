"""The limits of a JSON body: the largest that is accepted, and the smallest that is refused before it is parsed."""

import json

import pytest

from web.http import requests
from web.http.requests import (
    MAXIMUM_JSON_CONTAINERS,
    MAXIMUM_JSON_DEPTH,
    MAXIMUM_JSON_VALUES,
    MalformedJson,
    parse_json,
)


def nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * depth + closing * depth).encode()


def test_the_depth_is_bounded_to_the_level() -> None:
    assert MAXIMUM_JSON_DEPTH == 64
    assert json.dumps(parse_json(nested(64))).count("[") == 64
    for body in (nested(65), b'{"a":' * 65 + b"1" + b"}" * 65, nested(200_000)):
        with pytest.raises(MalformedJson, match="deeper than 64"):
            parse_json(body)


def test_siblings_and_strings_do_not_count_as_depth() -> None:
    flat = b"[" + b",".join([nested(63)] * 10) + b"]"
    assert len(parse_json(flat)) == 10
    assert parse_json(json.dumps("[" * 1000).encode()) == "[" * 1000
    assert parse_json(json.dumps(['"' + "[" * 1000]).encode()) == ['"' + "[" * 1000]


def test_objects_and_arrays_are_counted_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAXIMUM_JSON_CONTAINERS > MAXIMUM_JSON_DEPTH
    monkeypatch.setattr(requests, "MAXIMUM_JSON_CONTAINERS", 100)
    assert len(parse_json(b"[" + b",".join([b"{}"] * 99) + b"]")) == 99
    with pytest.raises(MalformedJson, match="objects and arrays"):
        parse_json(b"[" + b",".join([b"{}"] * 100) + b"]")


def test_values_are_counted_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAXIMUM_JSON_VALUES > MAXIMUM_JSON_CONTAINERS
    monkeypatch.setattr(requests, "MAXIMUM_JSON_VALUES", 10)
    assert len(parse_json(b"[" + b",".join([b"1"] * 11) + b"]")) == 11
    with pytest.raises(MalformedJson, match="values"):
        parse_json(b"[" + b",".join([b"1"] * 12) + b"]")


@pytest.mark.parametrize(
    "body", [b"\xef\xbb\xbf{}", b'{"a":1,"a":2}', b"NaN", b"[Infinity]", b'"\\ud800"', b"\xff", b""]
)
def test_invalid_json_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedJson):
        parse_json(body)


def test_a_key_that_stands_twice_is_found_in_one_pass() -> None:
    # Comparing each key with each other would take longer than a test may.
    names = [f'"k{number:06}":0' for number in range(200_000)]
    body = "{" + ",".join([*names, names[-1]]) + "}"
    with pytest.raises(MalformedJson, match='"k199999" is repeated'):
        parse_json(body.encode())
