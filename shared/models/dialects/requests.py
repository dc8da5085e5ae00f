"""A parsed creation request: its dialect, and the few facts that the flow needs. Also the check for other models.

The body stays the client's own, with unknown fields. A member of an unexpected type counts as absent.

A call is permitted, limited and charged by the model that it names (docs/decisions.md#named-model). Unknown fields are
passed to the upstream, but aggregators understand some by which they choose or add another model. `refuse_other_models`
refuses these, and tools that another model runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shared.models.errors import InvalidRequest

Json = dict[str, Any]


class Dialect(StrEnum):
    """The formats of the APIs: upstreams speak OpenAI's two, clients also Anthropic's."""

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
    """One request with a validated body. `max_output_tokens` is per choice; None means that the client set no limit."""

    dialect: Dialect
    model: str
    is_stream: bool
    wants_usage: bool
    max_output_tokens: int | None
    n: int
    body: Json


def describe(dialect: Dialect, body: Json, *, is_stream: bool) -> ParsedRequest:
    """Return the facts of a body that was already validated, possibly by another process."""
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
    """Return the output limit. With both fields of chat, the larger one, because an upstream may follow either."""
    given = [body[name] for name in _LIMITS[dialect] if body.get(name) is not None]
    return max(given, default=None)


def object_or_empty(value: Any) -> Json:
    """Return an object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[Json]:
    """Return the objects in a list, or an empty list for any other value."""
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []


MODEL_CHOICE_FIELDS = (
    "models", "route", "preset", "plugins",  # OpenRouter
    "fallbacks", "context_window_fallbacks", "content_policy_fallbacks",  # LiteLLM
    "providerOptions",  # Vercel's gateway
)  # fmt: skip
_EXTRA_BODY = "extra_body"
"""A gateway may send the members of this field to its own upstream as top-level fields."""
_IMAGES = "image_generation"
_OF_AN_AGGREGATOR = "openrouter:"


def refuse_other_models(body: Json) -> None:
    """Refuse a validated body of OpenAI's dialects that involves another model. Raises InvalidRequest."""
    for place, fields in (("", body), (f"{_EXTRA_BODY}.", object_or_empty(body.get(_EXTRA_BODY)))):
        for name in _fields_naming_models(fields):
            raise InvalidRequest(
                f"`{place}{name}` is not supported: the model that `model` names answers, and no other.",
                param=f"{place}{name}",
            )


def _fields_naming_models(fields: Json) -> Iterator[str]:
    yield from (name for name in MODEL_CHOICE_FIELDS if fields.get(name))
    for index, tool in enumerate(objects_in(fields.get("tools"))):
        if str(tool.get("type")).startswith((_IMAGES, _OF_AN_AGGREGATOR)):
            yield f"tools[{index}].type"
