"""A creation request that was read: its dialect, and the few facts that the flow needs of it.

The body stays the client's own, unknown fields included. A member that is not of the expected type counts as absent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shared.models.errors import InvalidRequest

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


MODEL_CHOICE_FIELDS = (
    "models", "route", "preset", "plugins",  # OpenRouter
    "fallbacks", "context_window_fallbacks", "content_policy_fallbacks",  # LiteLLM
    "providerOptions",  # Vercel's gateway
)  # fmt: skip
_EXTRA_BODY = "extra_body"
"""A gateway may say the members of this field to its own upstream as if they stood beside it."""
_IMAGES = "image_generation"
_OF_AN_AGGREGATOR = "openrouter:"


def refuse_other_models(body: Json) -> None:
    """Refuse a validated body of either of OpenAI's dialects that asks more than its model. Raises InvalidRequest."""
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
