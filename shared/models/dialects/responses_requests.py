"""The schema of `POST /v1/responses`, the parser, and the check that a request needs no stored state.

A request that requires stored state, or refers to it, is refused (docs/specification/models.md#requests).
"""

from typing import Any

from shared.models.dialects.requests import Dialect, Json, ParsedRequest, describe, refuse_other_models
from shared.models.dialects.shapes import (
    Check,
    anything,
    boolean,
    check_body,
    described,
    integer,
    list_of,
    map_of,
    number,
    object_of,
    one_of,
    schema_of,
    string,
    tagged,
    text_or,
    word_or,
)
from shared.models.errors import ResponseStateNotSupported

_STATE_FIELDS = ("previous_response_id", "conversation")


def parse_responses(
    body: Any, *, accepts_events: bool = False, store_absent_is_false: bool = False
) -> ParsedRequest:
    """Parse a Responses request; `accepts_events` is whether `Accept` names `text/event-stream`.

    Raises InvalidRequest, ResponseStateNotSupported (both with `param`).
    """
    check_body(body, object_of({}))
    # Check the state before the schema, so that a request with state gets the more specific error.
    _refuse_state(body, store_absent_is_false=store_absent_is_false)
    check_body(body, RESPONSES)
    refuse_other_models(body)
    return describe(Dialect.RESPONSES, body, is_stream=accepts_events or bool(body.get("stream")))


def _refuse_state(body: Json, *, store_absent_is_false: bool) -> None:
    """Refuse requests that need earlier responses (docs/specification/models.md#stateless)."""
    store = body.get("store")
    if store is not False and not (store is None and store_absent_is_false):
        raise ResponseStateNotSupported("Responses are not stored here: send `store: false`.", param="store")
    for name in _STATE_FIELDS:
        if body.get(name) is not None:
            raise ResponseStateNotSupported(
                f"`{name}` refers to stored state; send the full input.", param=name
            )
    if body.get("background"):
        raise ResponseStateNotSupported("Background responses are not supported.", param="background")
    given = body.get("input")
    for index, item in enumerate(given if isinstance(given, list) else ()):
        if isinstance(item, dict) and _is_reference(item):
            raise ResponseStateNotSupported(
                "An item reference points at stored state; send the item itself.", param=f"input[{index}]"
            )


def _is_reference(item: Json) -> bool:
    return item.get("type") == "item_reference" or (item.get("type") is None and set(item) <= {"id", "type"})


_TYPED = object_of({"type": string}, required=["type"])
_TEXT = object_of({"text": string}, required=["text"])
_PART = tagged(
    "type",
    {
        "input_text": _TEXT,
        "output_text": _TEXT,
        "refusal": object_of({"refusal": string}, required=["refusal"]),
        "input_image": object_of({"image_url": string, "file_id": string, "detail": string}),
        "input_file": object_of(
            {"file_data": string, "file_id": string, "file_url": string, "filename": string}
        ),
    },
    otherwise=_TYPED,
)
_CONTENT = text_or(list_of(_PART))
_MESSAGE = object_of(
    {"role": one_of("user", "assistant", "system", "developer"), "content": _CONTENT},
    required=["role", "content"],
)
_OUTPUT = object_of({"call_id": string, "output": _CONTENT}, required=["call_id", "output"])
_ITEM = tagged(
    "type",
    {
        "message": _MESSAGE,
        "function_call": object_of(
            {"call_id": string, "name": string, "arguments": string},
            required=["call_id", "name", "arguments"],
        ),
        "function_call_output": _OUTPUT,
        "custom_tool_call": object_of(
            {"call_id": string, "name": string, "input": string}, required=["call_id", "name", "input"]
        ),
        "custom_tool_call_output": _OUTPUT,
        "reasoning": object_of(
            {"summary": list_of(_TEXT), "content": list_of(_TEXT), "encrypted_content": string}
        ),
    },
    otherwise=_TYPED,
)
_SCHEMA = object_of(
    {"name": string, "schema": map_of(anything), "description": string, "strict": boolean},
    required=["name", "schema"],
)
_TOOL = tagged(
    "type",
    {
        "function": object_of(
            {"name": string, "description": string, "parameters": map_of(anything), "strict": boolean},
            required=["name"],
        ),
        "custom": object_of({"name": string, "description": string, "format": _TYPED}, required=["name"]),
    },
    otherwise=_TYPED,
)
_CHOICE = tagged(
    "type",
    {
        "function": object_of({"name": string}, required=["name"]),
        "custom": object_of({"name": string}, required=["name"]),
        "allowed_tools": object_of(
            {"mode": one_of("auto", "required"), "tools": list_of(_TYPED)}, required=["tools"]
        ),
    },
    otherwise=_TYPED,
)


def _item(value: Any) -> None:
    # Accept the short form of a message, which omits the type.
    is_short = isinstance(value, dict) and value.get("type") is None and "role" in value
    (_MESSAGE if is_short else _ITEM)(value)


described(_item, {"anyOf": [schema_of(_ITEM), schema_of(_MESSAGE)]})


_FIELDS: dict[str, Check] = {
    "model": string,
    "input": text_or(list_of(_item)),
    "instructions": string,
    "stream": boolean,
    "stream_options": object_of({"include_obfuscation": boolean}),
    "background": boolean,
    "include": list_of(string),
    "max_output_tokens": integer(1),
    "max_tool_calls": integer(1),
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "top_logprobs": integer(0, 20),
    "tools": list_of(_TOOL),
    "tool_choice": word_or(_CHOICE, "none", "auto", "required"),
    "parallel_tool_calls": boolean,
    "text": object_of(
        {"format": tagged("type", {"json_schema": _SCHEMA}, otherwise=_TYPED), "verbosity": string}
    ),
    "reasoning": object_of({"effort": string, "summary": string}),
    "truncation": one_of("auto", "disabled"),
    "metadata": map_of(string),
    "moderation": map_of(anything),
    "prompt": object_of({"id": string}, required=["id"]),
    "prompt_cache_key": string,
    "prompt_cache_options": map_of(anything),
    "prompt_cache_retention": string,
    "safety_identifier": string,
    "service_tier": string,
    "context_management": list_of(_TYPED),
    "user": string,
}
RESPONSES = object_of(_FIELDS, required=["model", "input"])
