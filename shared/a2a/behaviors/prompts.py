"""The prompt for a turn: the behavior's instructions, earlier messages, and the message.

The prompt includes the newest earlier messages that fit into the model's context length, together with the
instructions, the message and the longest reply. The message itself is never shortened: if it does not fit, it is
refused.
"""

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from shared.a2a.exact_json import render
from shared.a2a.types import Message, MessageRole, Part
from shared.a2a.updates import Turn
from shared.errors import DomainError, Kind
from shared.models.catalog import ModelEntry
from shared.models.dialects import Dialect, describe, estimate_prompt_tokens
from shared.models.errors import ContextLengthExceeded

REPLY_SHARE = 4
"""A reply may need a fourth of the context, unless the model declares a smaller limit."""
JSON_ONLY = "Reply with one JSON value and nothing else."
_READABLE = ("application/json", "application/xml", "application/yaml", "application/x-yaml")

ChatMessage: TypeAlias = dict[str, Any]
ReadFile: TypeAlias = Callable[[str], "tuple[str, bytes] | None"]
"""Returns the media type and content of a file of ours to which a link points; None for another address."""


class PartNotReadable(DomainError):
    """The agent cannot read a part of the message."""

    code = "part_not_readable"
    kind = Kind.INVALID


def write_body(turn: Turn, entry: ModelEntry, read_file: ReadFile, *, wants_json: bool) -> dict[str, Any]:
    """Return the body of a chat completion. Raises PartNotReadable, ContextLengthExceeded."""
    takes_images = "image" in entry.input_modalities
    current = _message("user", _contents(turn.message, takes_images=takes_images, read_file=read_file))
    instructions = "\n\n".join(filter(None, (turn.behavior.instructions, JSON_ONLY if wants_json else "")))
    fixed = [{"role": "system", "content": instructions}] if instructions else []
    earlier = [_message(_role(message), _recalled(message)) for message in turn.history()]
    room = None if entry.context_length is None else entry.context_length - _reply_tokens(entry)
    kept = _fitting(entry, fixed, _merged(earlier), current, room)
    json_mode = {"response_format": {"type": "json_object"}} if wants_json else {}
    messages = [*fixed, *_merged([*kept, current])]
    return {"model": entry.id, "messages": messages, "stream": True, "store": False, **json_mode}


def _fitting(
    entry: ModelEntry,
    fixed: Sequence[ChatMessage],
    earlier: Sequence[ChatMessage],
    current: ChatMessage,
    room: int | None,
) -> Sequence[ChatMessage]:
    """Return the newest earlier messages that fit. The first of them is a message of the user."""
    if room is None:
        return earlier
    room -= _tokens(entry, [*fixed, current])
    if room < 0:
        raise ContextLengthExceeded("The message exceeds the context length of the agent's model.")
    # Begin with the newest message, so that the oldest messages are left out.
    first = len(earlier)
    while first > 0 and (room := room - _tokens(entry, [earlier[first - 1]])) >= 0:
        first -= 1
    # Some models require the first message to be the user's.
    while first < len(earlier) and earlier[first]["role"] != "user":
        first += 1
    return earlier[first:]


def _reply_tokens(entry: ModelEntry) -> int:
    share = (entry.context_length or 0) // REPLY_SHARE
    return min(share, entry.max_completion_tokens or share)


def _tokens(entry: ModelEntry, messages: Sequence[ChatMessage]) -> int:
    body = {"model": entry.id, "messages": list(messages)}
    return estimate_prompt_tokens(describe(Dialect.CHAT, body, is_stream=True))


def _merged(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Merge consecutive messages of one side, because some models refuse them."""
    merged: list[ChatMessage] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            content = [*_as_list(merged[-1]["content"]), *_as_list(message["content"])]
            merged[-1] = _message(message["role"], content)
        else:
            merged.append(message)
    return merged


def _message(role: str, contents: Sequence[ChatMessage]) -> ChatMessage:
    """Return a message; its content is a string if it has only text, which every provider accepts."""
    if all(content["type"] == "text" for content in contents):
        return {"role": role, "content": "\n".join(content["text"] for content in contents)}
    return {"role": role, "content": list(contents)}


def _as_list(content: str | list[ChatMessage]) -> list[ChatMessage]:
    return [_text(content)] if isinstance(content, str) else content


def _text(text: str) -> ChatMessage:
    return {"type": "text", "text": text}


def _role(message: Message) -> str:
    return "user" if message.role is MessageRole.USER else "assistant"


def _recalled(message: Message) -> list[ChatMessage]:
    """Return an earlier message as text; files and images are only named, to save tokens."""
    return [_text(_plain_text(part) or _named(part)) for part in message.parts]


def _contents(message: Message, *, takes_images: bool, read_file: ReadFile) -> list[ChatMessage]:
    return [
        content
        for part in message.parts
        for content in _content(part, takes_images=takes_images, read_file=read_file)
    ]


def _content(part: Part, *, takes_images: bool, read_file: ReadFile) -> Iterator[ChatMessage]:
    text = _plain_text(part)
    if text is not None:
        yield _text(text)
        return
    media_type, content = part.media_type or "", part.raw
    if part.url is not None and (found := read_file(part.url)) is not None:
        media_type, content = found
    kind = media_type.partition(";")[0].strip().lower()
    if kind.startswith("image/") and takes_images:
        # An image elsewhere stays a URL: the provider fetches it, so this process opens no connection to it.
        url = part.url if content is None else f"data:{kind};base64,{base64.b64encode(content).decode()}"
        yield {"type": "image_url", "image_url": {"url": url}}
    elif content is not None and (kind.startswith("text/") or kind in _READABLE or kind.endswith("+json")):
        if part.filename:
            yield _text(f"{part.filename}:")
        yield _text(_decoded(content, part))
    elif content is None and not kind.startswith("image/"):
        yield _text(_named(part))
    else:
        raise PartNotReadable(f"The agent cannot read {kind or 'a part without a media type'}.")


def _plain_text(part: Part) -> str | None:
    if part.text is not None:
        return part.text
    return render(part.data) if part.has_data else None


def _named(part: Part) -> str:
    """Return a placeholder for a part that is not read."""
    name = part.filename or part.media_type or "file"
    return f"[{name}: {part.url}]" if part.url is not None else f"[{name}]"


def _decoded(content: bytes, part: Part) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise PartNotReadable(f"The text of {part.filename or 'a part'} is not UTF-8.") from error
