"""Token counts where nobody counted: before a call, to hold credits, and after one whose upstream reported no usage.

Four bytes of UTF-8 a token is what current tokenizers average on English and code; scripts that take three bytes a
character come out near one token a character, which is right for them too. An estimate is always marked as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.models.dialects.requests import Json, ParsedRequest

BYTES_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4
TOKENS_PER_IMAGE = 1_100  # a large picture in full detail
MEDIA_BYTES_PER_TOKEN = 64  # base64 of audio or documents
_READ_FIELDS = (
    "messages",
    "input",
    "instructions",
    "tools",
    "functions",
    "response_format",
    "text",
    "prediction",
)


def estimate_prompt_tokens(parsed: ParsedRequest) -> int:
    """Estimate the prompt of a request, its tools and schemas included."""
    given = [parsed.body[name] for name in _READ_FIELDS if name in parsed.body]
    messages = parsed.body.get("messages", parsed.body.get("input"))
    count = len(messages) if isinstance(messages, list) else 1
    return 3 + count * TOKENS_PER_MESSAGE + sum(_estimate_value(value) for value in given)


def estimate_completion_tokens(size_bytes: int) -> int:
    """Estimate a completion from the size of what it said (`Translator.completion_size_bytes`)."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def utf8_size(text: str) -> int:
    """Tell the bytes that a text takes in UTF-8; halves of surrogate pairs, which JSON lets through, count too."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _estimate_value(value: Any) -> int:
    text_bytes = media_bytes = images = 0
    for kind, size_bytes in _measure(value):
        if kind == "text":
            text_bytes += size_bytes
        elif kind == "image":
            images += 1
        else:
            media_bytes += size_bytes
    return (
        -(-text_bytes // BYTES_PER_TOKEN)
        + images * TOKENS_PER_IMAGE
        + -(-media_bytes // MEDIA_BYTES_PER_TOKEN)
    )


def _measure(root: Any) -> Iterator[tuple[str, int]]:
    """Walk a value without recursion, telling text from pictures and other media."""
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield "text", utf8_size(value)
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, dict):
            media = _media_of(value)
            if media is not None:
                yield media
            else:
                waiting.extend(value.keys())
                waiting.extend(value.values())


def _media_of(part: Json) -> tuple[str, int] | None:
    kind = part.get("type")
    if kind in ("image_url", "input_image"):
        return "image", 0
    if kind in ("input_audio", "file", "input_file"):
        return "media", sum(size for _, size in _measure(list(part.values())))
    return None
