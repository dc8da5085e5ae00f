"""Translate a chat completion request to the Responses dialect.

Fields that Responses lacks are dropped if they are hints (`seed`, `prediction`) and refused by name if the reply's
meaning depends on them. Unknown fields are kept.
"""

from collections.abc import Iterator
from typing import Any

from shared.models.dialects.requests import Json
from shared.models.errors import InvalidRequest

_UNSUPPORTED = ("stop", "logit_bias", "functions", "function_call", "audio")
_DROPPED = (
    "messages", "max_completion_tokens", "max_tokens", "reasoning_effort", "response_format", "verbosity", "tools",
    "tool_choice", "logprobs", "n", "seed", "prediction", "modalities", "web_search_options", "stream_options", "store",
)  # fmt: skip


def chat_as_responses(body: Json) -> Json:
    """Translate a validated body. Raises InvalidRequest with `param` for a field that Responses cannot express."""
    for name in _UNSUPPORTED:
        if body.get(name):
            raise InvalidRequest(f"`{name}` is not supported with this model.", param=name)
    if (body.get("n") or 1) > 1:
        raise InvalidRequest("This model supports only one choice per request: set `n` to 1.", param="n")
    translated = {name: value for name, value in body.items() if name not in (*_DROPPED, *_UNSUPPORTED)}
    translated["input"] = [item for message in body["messages"] for item in _items(message)]
    _translate_options(body, translated)
    return translated


def _translate_options(body: Json, translated: Json) -> None:
    # Prefer `max_completion_tokens`, because OpenAI replaced `max_tokens` by it.
    limits = [body[name] for name in ("max_completion_tokens", "max_tokens") if name in body]
    if limits:
        translated["max_output_tokens"] = limits[0]
    if "reasoning_effort" in body:
        translated["reasoning"] = {"effort": body["reasoning_effort"]}
    text = {"format": _format(body["response_format"])} if "response_format" in body else {}
    if "verbosity" in body:
        text["verbosity"] = body["verbosity"]
    if text:
        translated["text"] = text
    tools = [_flat(tool) for tool in body.get("tools", ())]
    if "web_search_options" in body:
        tools.append(_web_search(body["web_search_options"]))
    if tools:
        translated["tools"] = tools
    if "tool_choice" in body:
        translated["tool_choice"] = _tool_choice(body["tool_choice"])
    if body.get("logprobs"):
        translated["include"] = ["message.output_text.logprobs"]
    else:
        # Drop `top_logprobs` if no log probabilities are requested: Responses refuses it without `include`.
        translated.pop("top_logprobs", None)


def _items(message: Json) -> Iterator[Json]:
    role = message["role"]
    if role in ("tool", "function"):
        call_id = message["tool_call_id"] if role == "tool" else message["name"]
        yield {"type": "function_call_output", "call_id": call_id, "output": _output(message["content"])}
    elif role == "assistant":
        yield from _assistant_items(message)
    else:
        content = message["content"]
        parts = content if isinstance(content, str) else [_part(part) for part in content]
        yield {"type": "message", "role": role, "content": parts}


def _assistant_items(message: Json) -> Iterator[Json]:
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    parts = [
        {"type": "refusal", "refusal": part["refusal"]}
        if part["type"] == "refusal"
        else {"type": "output_text", "text": part.get("text", ""), "annotations": []}
        for part in content or ()
    ]
    if message.get("refusal"):
        # Make the refusal a part of the content, because chat has a separate field for it and Responses has none.
        parts.append({"type": "refusal", "refusal": message["refusal"]})
    if parts:
        yield {"type": "message", "role": "assistant", "content": parts}
    for call in message.get("tool_calls") or ():
        yield _call(call)
    if message.get("function_call"):
        called = message["function_call"]
        # Use the function's name as the id: a legacy call has no id, and its result names the function.
        yield {"type": "function_call", "call_id": called["name"], **called}


def _call(call: Json) -> Json:
    if call["type"] == "custom":
        return {"type": "custom_tool_call", "call_id": call["id"], **call["custom"]}
    return {"type": "function_call", "call_id": call["id"], **call["function"]}


def _output(content: Any) -> Any:
    return content if isinstance(content, str) else [_part(part) for part in content or ()]


def _part(part: Json) -> Json:
    """Translate a part of a user's or tool's message; unknown kinds are kept."""
    kind = part["type"]
    if kind == "text":
        return {**part, "type": "input_text"}
    if kind == "image_url":
        image = part["image_url"]
        rest = {name: value for name, value in part.items() if name not in ("type", "image_url")}
        return {
            "type": "input_image",
            "image_url": image["url"],
            "detail": image.get("detail") or "auto",
            **rest,
        }
    if kind == "file":
        return {"type": "input_file", **part["file"]}
    return part


def _format(given: Json) -> Json:
    if given["type"] != "json_schema":
        return given
    return {"type": "json_schema", "schema": {}, **given["json_schema"]}


def _flat(tool: Json) -> Json:
    """Move the fields that chat nests under the tool's type to the top (`{"type": "function", "function": {…}}`)."""
    nested = tool.get(tool["type"])
    if not isinstance(nested, dict):
        return tool
    flat = {"type": tool["type"], **nested}
    if flat["type"] == "function":
        # Set the fields that chat may omit: Responses would read an absent `strict` as true, but chat means false.
        flat = {"parameters": None, "strict": False, **flat}
    grammar = (flat.get("format") or {}).get("grammar")
    if grammar is not None:
        flat["format"] = {"type": "grammar", **grammar}
    return flat


def _tool_choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice["type"] == "allowed_tools":
        allowed = choice["allowed_tools"]
        return {
            "type": "allowed_tools",
            "mode": allowed["mode"],
            "tools": [_flat_name(t) for t in allowed["tools"]],
        }
    return _flat_name(choice)


def _flat_name(tool: Json) -> Json:
    nested = tool.get(tool["type"])
    return {"type": tool["type"], "name": nested["name"]} if isinstance(nested, dict) else tool


def _web_search(options: Json) -> Json:
    tool: Json = {"type": "web_search"}
    if options.get("search_context_size"):
        tool["search_context_size"] = options["search_context_size"]
    if isinstance(options.get("user_location"), dict):
        tool["user_location"] = {"type": "approximate", **(options["user_location"].get("approximate") or {})}
    return tool
