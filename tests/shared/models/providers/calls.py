"""Models for tests, and calls to them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from shared.models.catalog import ModelEntry
from shared.models.catalog_format import parse_catalog
from shared.models.dialects.requests import Dialect
from shared.models.providers.base import Cancellation, Event, UpstreamStream
from shared.models.providers.routing import Router

NEVER = threading.Event()
FRAMINGS = pytest.mark.parametrize("framing", ["chunked", "close", "length"])
"""The framing of a response's body."""


def model(
    *base_urls: str,
    dialect: Dialect = Dialect.CHAT,
    connect_timeout_seconds: float = 2.0,
    idle_timeout_seconds: float = 5.0,
    provider_keys: str = "",
    **keys: float,
) -> ModelEntry:
    """Return a model with upstreams at these addresses; `keys` are keys of `[[models]]`."""
    lines = []
    for number, base_url in enumerate(base_urls):
        lines += [
            f"[providers.p{number}]",
            f'base_url = "{base_url}"',
            f'dialect = "{dialect}"',
            provider_keys,
        ]
        lines += [f"connect_timeout_seconds = {connect_timeout_seconds}"]
        lines += [f"idle_timeout_seconds = {idle_timeout_seconds}"]
    upstreams = ", ".join(
        f'{{ provider = "p{number}", model = "m{number}" }}' for number in range(len(base_urls))
    )
    lines += ["[[models]]", 'id = "test/model"', 'prompt_price = "1"', 'completion_price = "2"']
    lines += [f"upstreams = [{upstreams}]", *(f"{key} = {value}" for key, value in keys.items())]
    found = parse_catalog("\n".join(lines), source="test").find("test/model")
    assert found is not None
    return found


def body(text: str = "hi", **fields: Any) -> dict[str, Any]:
    """Return a body that is valid in both dialects."""
    return {"messages": [{"role": "user", "content": text}], "input": text, "stream": True, **fields}


def events_of(
    router: Router, entry: ModelEntry, text: str = "hi", *, cancelled: Cancellation = NEVER, **fields: Any
) -> list[Event]:
    """Make a call. Return the events of its whole response."""
    with router.open(entry, lambda _: body(text, **fields), cancelled=cancelled) as stream:
        return list(stream)


def read(
    stream: UpstreamStream, into: list[Event], *, before_each: Callable[[], object] = lambda: None
) -> None:
    """Read a response. Keep the events before an error."""
    for event in stream:
        before_each()
        into.append(event)


def text_of(events: list[Event]) -> str:
    """Join the text of chat chunks or response events."""
    pieces = []
    for event in events:
        if event.get("type") == "response.output_text.delta":
            pieces.append(event["delta"])
        for choice in event.get("choices", ()):
            said = choice["delta"] if "delta" in choice else choice["message"]
            pieces.append(said.get("content") or "")
    return "".join(pieces)


def usage_of(events: list[Event]) -> dict[str, Any] | None:
    """Find the last usage that was reported."""
    found = None
    for event in events:
        found = event.get("usage") or (event.get("response") or {}).get("usage") or found
    return found
