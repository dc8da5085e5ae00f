"""What a request may not say: that another model than the one it names is to answer, or to work for the answer.

A call is allowed, limited and charged by the model that it names (docs/decisions.md#named-model). What is not known
here travels to the upstream; an aggregator understands fields by which it chooses another model or adds some. Those
are refused, and the tools that have another model work.
"""

from collections.abc import Iterator

from shared.models.dialects.requests import Json, object_or_empty, objects_in
from shared.models.errors import InvalidRequest

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
