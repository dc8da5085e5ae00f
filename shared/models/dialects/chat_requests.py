"""The schema of `POST /v1/chat/completions` (docs/specification/models.md#requests), and its parser.

Audio output and `store: true` are refused: replies are text only, and nothing is stored.
"""

from typing import Any

from shared.models.dialects.requests import Dialect, ParsedRequest, describe, refuse_other_models
from shared.models.dialects.shapes import (
    Check,
    anything,
    boolean,
    check_body,
    integer,
    list_of,
    map_of,
    nullable,
    number,
    object_of,
    one_of,
    string,
    tagged,
    text_or,
    word_or,
)
from shared.models.errors import ResponseStateNotSupported

MAXIMUM_CHOICES = 128


def parse_chat(body: Any, *, accepts_events: bool = False) -> ParsedRequest:
    """Parse a chat completion request; `accepts_events` is whether `Accept` names `text/event-stream`.

    Raises InvalidRequest, ResponseStateNotSupported (both with `param`).
    """
    check_body(body, CHAT)
    if body.get("store"):
        raise ResponseStateNotSupported("Completions are not stored here: leave `store` out.", param="store")
    refuse_other_models(body)
    return describe(Dialect.CHAT, body, is_stream=accepts_events or bool(body.get("stream")))


_TYPED = object_of({"type": string}, required=["type"])
_TEXT_PART = object_of({"text": string}, required=["text"])
_REFUSAL_PART = object_of({"refusal": string}, required=["refusal"])
_IMAGE_URL = object_of({"url": string, "detail": string}, required=["url"])
_AUDIO = object_of({"data": string, "format": string}, required=["data", "format"])
_FILE = object_of({"file_data": string, "file_id": string, "filename": string})
_PART = tagged(
    "type",
    {
        "text": _TEXT_PART,
        "refusal": _REFUSAL_PART,
        "image_url": object_of({"image_url": _IMAGE_URL}, required=["image_url"]),
        "input_audio": object_of({"input_audio": _AUDIO}, required=["input_audio"]),
        "file": object_of({"file": _FILE}, required=["file"]),
    },
    otherwise=_TYPED,
)
_CONTENT = text_or(list_of(_PART))
_CALLED_FUNCTION = object_of({"name": string, "arguments": string}, required=["name", "arguments"])
_CALLED_CUSTOM = object_of({"name": string, "input": string}, required=["name", "input"])
_TOOL_CALL = tagged(
    "type",
    {
        "function": object_of({"id": string, "function": _CALLED_FUNCTION}, required=["id", "function"]),
        "custom": object_of({"id": string, "custom": _CALLED_CUSTOM}, required=["id", "custom"]),
    },
)
_TEXT_MESSAGE = object_of({"content": _CONTENT, "name": string}, required=["content"])
_ASSISTANT = object_of(
    {
        "content": _CONTENT,
        "name": string,
        "refusal": string,
        "tool_calls": list_of(_TOOL_CALL),
        "function_call": _CALLED_FUNCTION,
    }
)
_MESSAGE = tagged(
    "role",
    {
        "system": _TEXT_MESSAGE,
        "developer": _TEXT_MESSAGE,
        "user": _TEXT_MESSAGE,
        "assistant": _ASSISTANT,
        "tool": object_of(
            {"content": _CONTENT, "tool_call_id": string}, required=["content", "tool_call_id"]
        ),
        "function": object_of({"content": nullable(string), "name": string}, required=["content", "name"]),
    },
)
_FUNCTION = object_of(
    {"name": string, "description": string, "parameters": map_of(anything), "strict": boolean},
    required=["name"],
)
_GRAMMAR = object_of({"grammar": map_of(string)}, required=["grammar"])
_CUSTOM_FORMAT = tagged("type", {"grammar": _GRAMMAR}, otherwise=_TYPED)
_CUSTOM = object_of({"name": string, "description": string, "format": _CUSTOM_FORMAT}, required=["name"])
_TOOL = tagged(
    "type",
    {
        "function": object_of({"function": _FUNCTION}, required=["function"]),
        "custom": object_of({"custom": _CUSTOM}, required=["custom"]),
    },
    otherwise=_TYPED,
)
_SCHEMA = object_of(
    {"name": string, "description": string, "schema": map_of(anything), "strict": boolean}, required=["name"]
)
_FORMAT = tagged(
    "type",
    {"json_schema": object_of({"json_schema": _SCHEMA}, required=["json_schema"])},
    otherwise=_TYPED,
)
_NAMED = object_of({"name": string}, required=["name"])
_ALLOWED_TOOL = tagged(
    "type",
    {
        "function": object_of({"function": _NAMED}, required=["function"]),
        "custom": object_of({"custom": _NAMED}, required=["custom"]),
    },
)
_ALLOWED = object_of(
    {"mode": one_of("auto", "required"), "tools": list_of(_ALLOWED_TOOL)}, required=["mode", "tools"]
)
_CHOICE = tagged(
    "type",
    {
        "function": object_of({"function": _NAMED}, required=["function"]),
        "custom": object_of({"custom": _NAMED}, required=["custom"]),
        "allowed_tools": object_of({"allowed_tools": _ALLOWED}, required=["allowed_tools"]),
    },
)
_LOCATION = object_of({"approximate": map_of(anything)})
_FIELDS: dict[str, Check] = {
    "messages": list_of(_MESSAGE, at_least=1),
    "model": string,
    "stream": boolean,
    "stream_options": object_of({"include_usage": boolean, "include_obfuscation": boolean}),
    "store": boolean,
    "n": integer(1, MAXIMUM_CHOICES),
    "max_completion_tokens": integer(1),
    "max_tokens": integer(1),
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "frequency_penalty": number(-2, 2),
    "presence_penalty": number(-2, 2),
    "seed": integer(),
    "stop": text_or(list_of(string)),
    "logit_bias": map_of(number(-100, 100)),
    "logprobs": boolean,
    "top_logprobs": integer(0, 20),
    "tools": list_of(_TOOL),
    "tool_choice": word_or(_CHOICE, "none", "auto", "required"),
    "parallel_tool_calls": boolean,
    "functions": list_of(_FUNCTION),
    "function_call": word_or(_NAMED, "none", "auto"),
    "response_format": _FORMAT,
    "modalities": list_of(one_of("text")),
    "reasoning_effort": string,
    "verbosity": string,
    "prediction": _TYPED,
    "metadata": map_of(string),
    "moderation": map_of(anything),
    "web_search_options": object_of({"search_context_size": string, "user_location": _LOCATION}),
    "prompt_cache_key": string,
    "prompt_cache_options": map_of(anything),
    "prompt_cache_retention": string,
    "safety_identifier": string,
    "service_tier": string,
    "user": string,
}
CHAT = object_of(_FIELDS, required=["model", "messages"])
