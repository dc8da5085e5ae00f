"""`Accept` is evaluated as in RFC 9110, by one function for all routes."""

import pytest
from flask import Request
from werkzeug.test import EnvironBuilder

from web.http.negotiation import EVENT_STREAM, JSON, negotiate, wants_events

CSV = "text/csv"


def request(accept: str | None) -> Request:
    builder = EnvironBuilder()
    if accept is not None:
        builder.headers["Accept"] = accept
    return Request(builder.get_environ())


@pytest.mark.parametrize(
    "accept",
    [
        "text/event-stream",
        "Text/Event-Stream",
        "text/event-stream; charset=utf-8",
        "text/event-stream;Q=0.9",
        "text/*",
        "text/event-stream, */*",
        "text/event-stream, */*;q=0.1",
        "application/json;q=0.5, text/event-stream",
        "application/json;q=0, */*",
    ],
)
def test_stream_is_sent_if_preferred(accept: str) -> None:
    assert wants_events(request(accept))


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "*/*",
        "application/json",
        "APPLICATION/JSON",
        "text/event-stream;q=0",
        "text/event-stream; q=0.0, application/json",
        "text/event-stream;q=0, text/*",
        "text/event-stream;q=0.4, application/json;q=0.5",
        "application/json, text/event-stream",
        "text/event-stream, application/json",
        "application/x-text/event-stream",
        "text/event-stream-like",
        "text/event-stream;q=nonsense",
        'application/json; note="text/event-stream"',
        "text/html",
        "*",
        ", ;, q=1",
    ],
)
def test_stream_is_not_sent_unless_preferred(accept: str | None) -> None:
    assert not wants_events(request(accept))


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("text/csv", CSV),
        ("text/csv; header=present, application/json;q=0.9", CSV),
        ("text/html, text/csv;q=0.2, */*;q=0.1", CSV),
        ("*/*", JSON),
        ("text/csv;q=0", JSON),
        ("image/png", JSON),
        ("text/event-stream", EVENT_STREAM),
    ],
)
def test_any_types_can_be_offered(accept: str, chosen: str) -> None:
    assert negotiate(request(accept), (JSON, CSV, EVENT_STREAM)) == chosen
