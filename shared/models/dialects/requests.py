"""A creation request that was read: its dialect, and the few facts that the flow needs of it.

The body stays the client's own, unknown fields included. A member that is not of the expected type counts as absent.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Json = dict[str, Any]


class Dialect(StrEnum):
    """The two ways in which OpenAI-compatible parties talk."""

    CHAT = "chat"
    RESPONSES = "responses"


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
        max_output_tokens=_chat_limit(body) if is_chat else body.get("max_output_tokens"),
        n=(body.get("n") or 1) if is_chat else 1,
        body=body,
    )


def _chat_limit(body: Json) -> int | None:
    """Take the larger of the two spellings: an upstream may follow either."""
    given = [body[name] for name in ("max_completion_tokens", "max_tokens") if body.get(name) is not None]
    return max(given, default=None)


def object_or_empty(value: Any) -> Json:
    """Take an object; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[Json]:
    """Take the objects in a list; anything else holds none."""
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []
