"""A parsed creation request, and the check that a request involves no model other than the one that it names.

The body of a parsed request is the client's own body, with unknown fields. A field of an unexpected type counts as
absent.

A call is permitted, limited and charged by the model that it names (docs/decisions.md#named-model). Unknown fields are
passed to the upstream, but some upstreams are aggregators, which choose or add another model by certain fields.
`refuse_other_models` refuses such fields, and tools that another model runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shared.models.errors import InvalidRequest

Json = dict[str, Any]


class Dialect(StrEnum):
    """The formats of the APIs. Upstreams use OpenAI's two formats; clients may also use Anthropic's."""

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
    """A request with a validated body. `max_output_tokens` applies to each choice; None means that no limit is set."""

    dialect: Dialect
    model: str
    is_stream: bool
    wants_usage: bool
    max_output_tokens: int | None
    n: int
    body: Json


def describe(dialect: Dialect, body: Json, *, is_stream: bool) -> ParsedRequest:
    """Return the parsed request of a body that was already validated, possibly by another process."""
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
    """Return the output limit. If both fields of chat are set, return the larger: an upstream may apply either one."""
    given = [body[name] for name in _LIMITS[dialect] if body.get(name) is not None]
    return max(given, default=None)


def object_or_empty(value: Any) -> Json:
    """Return the value if it is a JSON object, else an empty object."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[Json]:
    """Return the JSON objects in the value if it is a list, else an empty list."""
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []


MODEL_CHOICE_FIELDS = (
    "models", "route", "preset", "plugins",  # OpenRouter
    "fallbacks", "context_window_fallbacks", "content_policy_fallbacks",  # LiteLLM
    "providerOptions",  # Vercel's gateway
)  # fmt: skip
_EXTRA_BODY = "extra_body"
"""A field with further fields. A gateway may send these fields to its own upstream at the top level."""
_IMAGES = "image_generation"
_OF_AN_AGGREGATOR = "openrouter:"


def refuse_other_models(body: Json) -> None:
    """Raise InvalidRequest if a validated body of OpenAI's dialects involves a model that the body does not name."""
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
