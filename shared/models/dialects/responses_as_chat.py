"""Translate a Responses request to the chat dialect, by the rules of `chat_as_responses`.

Reasoning items are dropped, because chat has no field for reasoning.
"""

from typing import Any, NoReturn

from shared.models.dialects.requests import Json
from shared.models.errors import InvalidRequest

_UNSUPPORTED = ("prompt", "context_management")
_DROPPED = (
    "input", "instructions", "max_output_tokens", "reasoning", "text", "tools", "tool_choice", "include", "truncation",
    "max_tool_calls", "metadata", "background", "conversation", "previous_response_id", "stream_options", "store",
    "top_logprobs",
)  # fmt: skip
_NESTED_TOOLS = ("function", "custom")


def responses_as_chat(body: Json, *, limit_field: str) -> Json:
    """Translate a validated body. Raises InvalidRequest with `param` for a field that chat cannot express."""
    for name in _UNSUPPORTED:
        if body.get(name):
            raise InvalidRequest(f"`{name}` is not supported with this model.", param=name)
    translated = {name: value for name, value in body.items() if name not in (*_DROPPED, *_UNSUPPORTED)}
    translated["messages"] = _messages(body)
    _translate_options(body, translated, limit_field)
    return translated


def _translate_options(body: Json, translated: Json, limit_field: str) -> None:
    text, effort = body.get("text") or {}, (body.get("reasoning") or {}).get("effort")
    renamed = {
        limit_field: body.get("max_output_tokens"),
        "reasoning_effort": effort,
        "verbosity": text.get("verbosity"),
        "response_format": _response_format(text.get("format")),
        "tools": [_tool(tool, f"tools[{index}]") for index, tool in enumerate(body.get("tools", ()))] or None,
        "tool_choice": _tool_choice(body.get("tool_choice")),
    }
    translated.update({name: value for name, value in renamed.items() if value is not None})
    if body.get("top_logprobs") or "message.output_text.logprobs" in body.get("include", ()):
        # Set both fields: chat requires `logprobs` in addition to the number.
        translated["logprobs"] = True
        translated["top_logprobs"] = body.get("top_logprobs", 0)


def _messages(body: Json) -> list[Json]:
    messages: list[Json] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    given = body["input"]
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
        return messages
    for index, item in enumerate(given):
        _add_item(messages, item, f"input[{index}]")
    return messages


def _add_item(messages: list[Json], item: Json, param: str) -> None:
    kind = "message" if item.get("type") is None else item["type"]
    if kind == "message":
        messages.append(_message(item, param))
    elif kind in ("function_call", "custom_tool_call"):
        _assistant(messages).setdefault("tool_calls", []).append(_call(item))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        content = _parts(item["output"], f"{param}.output")
        messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    elif kind != "reasoning":
        _refuse(kind, f"{param}.type")


def _assistant(messages: list[Json]) -> Json:
    """Return the assistant message to which to add a call: the last message, or a new one if a user wrote the last.

    Chat puts the text and the calls of one reply into one message.
    """
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _message(item: Json, param: str) -> Json:
    role, content = item["role"], item["content"]
    if role == "assistant" and not isinstance(content, str):
        return _assistant_message(content)
    # Write `system` for `developer`: compatible servers know only `system`, and OpenAI accepts both.
    role = "system" if role == "developer" else role
    return {"role": role, "content": _parts(content, f"{param}.content")}


def _assistant_message(parts: list[Json]) -> Json:
    text = "".join(
        part.get("text", "") for part in parts if part["type"] in ("output_text", "input_text", "text")
    )
    refusal = "".join(part["refusal"] for part in parts if part["type"] == "refusal")
    message: Json = {"role": "assistant", "content": text or (None if refusal else "")}
    if refusal:
        message["refusal"] = refusal
    return message


def _call(item: Json) -> Json:
    if item["type"] == "custom_tool_call":
        custom = {"name": item["name"], "input": item["input"]}
        return {"id": item["call_id"], "type": "custom", "custom": custom}
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _parts(content: Any, param: str) -> Any:
    if isinstance(content, str):
        return content
    return [_part(part, f"{param}[{index}]") for index, part in enumerate(content)]


def _part(part: Json, param: str) -> Json:
    kind = part["type"]
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": part["text"]}
    if kind == "input_image":
        if not part.get("image_url"):
            _refuse("an image without image_url", f"{param}.file_id")
        detail = {"detail": part["detail"]} if part.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_file":
        # Refuse a file by URL, because chat supports files only inline or by id.
        if part.get("file_url"):
            _refuse("a file by URL", f"{param}.file_url")
        known = ("file_data", "file_id", "filename")
        return {"type": "file", "file": {name: part[name] for name in known if part.get(name)}}
    return part


def _response_format(given: Json | None) -> Json | None:
    if given is None or given["type"] == "text":
        return None
    if given["type"] != "json_schema":
        return given
    return {"type": "json_schema", "json_schema": {name: v for name, v in given.items() if name != "type"}}


def _tool(tool: Json, param: str) -> Json:
    kind = tool["type"]
    if kind not in _NESTED_TOOLS:
        _refuse(kind, f"{param}.type")
    nested = {name: value for name, value in tool.items() if name != "type" and value is not None}
    form = nested.get("format")
    if isinstance(form, dict) and form.get("type") == "grammar":
        nested["format"] = {
            "type": "grammar",
            "grammar": {name: v for name, v in form.items() if name != "type"},
        }
    return {"type": kind, kind: nested}


def _tool_choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice["type"] == "allowed_tools":
        tools = [_named(tool) for tool in choice.get("tools", ())]
        return {
            "type": "allowed_tools",
            "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": tools},
        }
    return _named(choice)


def _named(tool: Json) -> Json:
    if tool["type"] not in _NESTED_TOOLS or "name" not in tool:
        _refuse(tool["type"], "tool_choice")
    return {"type": tool["type"], tool["type"]: {"name": tool["name"]}}


def _refuse(what: str, param: str) -> NoReturn:
    raise InvalidRequest(f"{what} is not supported with this model.", param=param)
