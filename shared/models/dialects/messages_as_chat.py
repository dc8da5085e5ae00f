"""Translate a Messages request to the chat dialect, and from there to Responses.

Hints (`cache_control`, examples of tools) and earlier thoughts are dropped. Fields on which the reply's meaning depends
are refused by name. A chat tool message holds text only, so images of a tool's result follow in a user message.
"""

import hashlib
import json
from typing import Any

from shared.models.dialects.chat_as_responses import chat_as_responses
from shared.models.dialects.requests import Json
from shared.models.errors import InvalidRequest

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_EFFORTS = {"max": "xhigh"}
_MODEST_BUDGET_TOKENS = 4_096
_LARGE_BUDGET_TOKENS = 16_384
_MOST_USER_CHARACTERS = 64
_BETWEEN_BLOCKS = "\n\n"
_FAILED = "Error: "


def messages_as_chat(body: Json, *, limit_field: str) -> Json:
    """Translate a validated body. Raises InvalidRequest with `param` for content that chat cannot express."""
    translated = _translated(body, limit_field)
    translated["messages"] = _with_media_separated(translated["messages"])
    for message in translated["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if "file_url" in part.get("file", ()):
                raise InvalidRequest("A document by URL is not supported with this model.", param="messages")
    return translated


def messages_as_responses(body: Json) -> Json:
    """Translate a validated body. Raises InvalidRequest with `param` for content that Responses cannot express."""
    if body.get("stop_sequences"):
        raise InvalidRequest("`stop_sequences` is not supported with this model.", param="stop_sequences")
    return chat_as_responses(_translated(body, "max_completion_tokens"))


def _translated(body: Json, limit_field: str) -> Json:
    output, choice = body.get("output_config") or {}, body.get("tool_choice") or {}
    translated = {
        "messages": _messages(body),
        limit_field: body.get("max_tokens"),
        "temperature": body.get("temperature"),
        "top_p": body.get("top_p"),
        "top_k": body.get("top_k"),
        "stop": body.get("stop_sequences") or None,
        "tools": [_tool(tool) for tool in body.get("tools") or ()] or None,
        "tool_choice": _tool_choice(choice),
        "parallel_tool_calls": False if choice.get("disable_parallel_tool_use") else None,
        "reasoning_effort": _effort(output, body.get("thinking") or {}),
        "response_format": _response_format(output.get("format")),
        "service_tier": "default" if body.get("service_tier") == "standard_only" else None,
        "user": _user((body.get("metadata") or {}).get("user_id")),
    }
    return {name: value for name, value in translated.items() if value is not None}


def _messages(body: Json) -> list[Json]:
    messages: list[Json] = []
    if body.get("system"):
        messages.append({"role": "system", "content": _text(body["system"])})
    for turn in body["messages"]:
        if turn["role"] == "user":
            _add_user(messages, turn["content"])
        elif turn["role"] == "assistant":
            _add_assistant(messages, turn["content"])
        else:
            messages.append({"role": "system", "content": _text(turn["content"])})
    return messages


def _add_user(messages: list[Json], content: Any) -> None:
    """Add each tool result as a message of its own, then the user's content as one message."""
    blocks = _blocks(content)
    # Add the tool results first, because chat requires them directly after the calls.
    messages += [_tool_message(block) for block in blocks if block["type"] == "tool_result"]
    parts = [part for block in blocks if block["type"] != "tool_result" for part in _parts(block)]
    if parts:
        messages.append({"role": "user", "content": _plain(parts)})


def _add_assistant(messages: list[Json], content: Any) -> None:
    blocks = _blocks(content)
    text = _text([block for block in blocks if block["type"] == "text"])
    calls = [_call(block) for block in blocks if block["type"] == "tool_use"]
    # Drop a message with thoughts only, because chat has no field for thoughts.
    if not text and not calls:
        return
    message: Json = {"role": "assistant", "content": text or None}
    messages.append(message | {"tool_calls": calls} if calls else message)


def _blocks(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(content: Any) -> str:
    return _BETWEEN_BLOCKS.join(block["text"] for block in _blocks(content) if block["text"])


def _plain(parts: list[Json]) -> Any:
    """Join the parts to one string if all are text, because every upstream accepts a string."""
    return _text(parts) if all(part["type"] == "text" for part in parts) else parts


def _parts(block: Json) -> list[Json]:
    if block["type"] == "text":
        return [{"type": "text", "text": block["text"]}]
    return [_image(block["source"])] if block["type"] == "image" else _document(block)


def _image(source: Json) -> Json:
    url = source["url"] if source["type"] == "url" else f"data:{source['media_type']};base64,{source['data']}"
    return {"type": "image_url", "image_url": {"url": url}}


def _document(block: Json) -> list[Json]:
    source, title = block["source"], block.get("title")
    about = [{"type": "text", "text": text} for text in (title, block.get("context")) if text]
    if source["type"] == "text":
        return [*about, {"type": "text", "text": source["data"]}]
    if source["type"] == "content":
        return [*about, *(part for inner in _blocks(source["content"]) for part in _parts(inner))]
    if source["type"] == "url":
        # Keep the URL for Responses upstreams. The chat dialect has no file by URL, so `messages_as_chat` refuses it.
        return [*about, {"type": "file", "file": {"file_url": source["url"]}}]
    data = f"data:{source['media_type']};base64,{source['data']}"
    return [*about, {"type": "file", "file": {"filename": "document.pdf", "file_data": data}}]


def _tool_message(block: Json) -> Json:
    parts = [part for inner in _blocks(block.get("content") or "") for part in _parts(inner)]
    if block.get("is_error"):
        if parts and parts[0]["type"] == "text":
            parts[0]["text"] = _FAILED + parts[0]["text"]
        else:
            parts.insert(0, {"type": "text", "text": _FAILED.strip()})
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _plain(parts)}


def _call(block: Json) -> Json:
    function = {"name": block["name"], "arguments": json.dumps(block["input"])}
    return {"id": block["id"], "type": "function", "function": function}


def _with_media_separated(messages: list[Json]) -> list[Json]:
    """Move images and files from tool messages to the user message that follows."""
    separated: list[Json] = []
    media: list[Json] = []
    for message in messages:
        if message["role"] == "tool" and isinstance(message["content"], list):
            texts = [part for part in message["content"] if part["type"] == "text"]
            media += [part for part in message["content"] if part["type"] != "text"]
            separated.append({**message, "content": _text(texts) or "The result follows."})
            continue
        if media and message["role"] != "tool":
            own = _blocks(message["content"]) if message["role"] == "user" else []
            # Insert the media after the last tool message: chat allows no other message between calls and results.
            separated.append({"role": "user", "content": [*media, *own]})
            media = []
            if message["role"] == "user":
                continue
        separated.append(message)
    return [*separated, {"role": "user", "content": media}] if media else separated


def _tool(tool: Json) -> Json:
    function = {"name": tool["name"], "parameters": tool["input_schema"]}
    optional = {name: tool[name] for name in ("description", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": function | optional}


def _tool_choice(choice: Json) -> Any:
    if choice.get("type") == "tool":
        return {"type": "function", "function": {"name": choice["name"]}}
    return _CHOICES.get(choice.get("type", ""))


def _effort(output: Json, thinking: Json) -> str | None:
    """Return the reasoning effort that the request names, or else derive the effort from the token budget.

    Returns None if the request has neither, so that the model's default applies.
    """
    effort, budget = output.get("effort"), thinking.get("budget_tokens")
    if effort is not None:
        return _EFFORTS.get(effort, effort)
    if budget is None:
        return None
    if budget < _MODEST_BUDGET_TOKENS:
        return "low"
    return "medium" if budget < _LARGE_BUDGET_TOKENS else "high"


def _response_format(form: Json | None) -> Json | None:
    if form is None:
        return None
    schema = {"name": "answer", "schema": form["schema"], "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def _user(user_id: str | None) -> str | None:
    """Return the user's name, hashed if it exceeds OpenAI's limit of 64 characters."""
    if user_id is None or len(user_id) <= _MOST_USER_CHARACTERS:
        return user_id
    return hashlib.sha256(user_id.encode("utf-8", "surrogatepass")).hexdigest()
