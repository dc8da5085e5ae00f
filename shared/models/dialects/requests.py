"""A creation request that was read: its dialect, and the few facts that the flow needs of it.

The body stays the client's own, unknown fields included. A member that is not of the expected type counts as absent.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Json = dict[str, Any]


class Dialect(StrEnum):
    """The ways in which parties talk: upstreams in OpenAI's two, clients also in Anthropic's."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


UPSTREAM_DIALECTS = (Dialect.CHAT, Dialect.RESPONSES)

_LIMITS = {
    Dialect.CHAT: ("max_completion_tokens", "max_tokens"),
    Dialect.RESPONSES: ("max_output_tokens",),
    Dialect.MESSAGES: ("max_tokens",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """One request, its body already validated. `max_output_tokens` is per choice; None: the client left it open."""

    dialect: Dialect
    model: str
    is_stream: bool
    wants_usage: bool
    max_output_tokens: int | None
    n: int
    body: Json


def describe(dialect: Dialect, body: Json, *, is_stream: bool) -> ParsedRequest:
    """Tell the facts of a body that was validated before, for instance by the process that accepted it."""
    is_chat = dialect is Dialect.CHAT
    return ParsedRequest(
        dialect=dialect,
        model=body["model"],
        is_stream=is_stream,
        wants_usage=not is_chat or bool((body.get("stream_options") or {}).get("include_usage")),
        max_output_tokens=_limit(dialect, body),
        n=(body.get("n") or 1) if is_chat else 1,
        body=body,
    )


def _limit(dialect: Dialect, body: Json) -> int | None:
    """Find the limit; of chat's two spellings the larger one, because an upstream may follow either."""
    given = [body[name] for name in _LIMITS[dialect] if body.get(name) is not None]
    return max(given, default=None)


def object_or_empty(value: Any) -> Json:
    """Take an object; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[Json]:
    """Take the objects in a list; anything else holds none."""
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []
