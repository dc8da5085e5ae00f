"""Token counts: parse an upstream's usage report, write the usage of each dialect, estimate counts without a report.

Upstreams name and nest the same five numbers differently. `read_usage` converts every form to `TokenCounts`. An
estimate assumes four bytes of UTF-8 per token. This is right for English and code, and about one token per character
for scripts with three bytes per character. Estimates are always marked as such.
"""

from collections.abc import Iterator
from typing import Any

from shared.credits.prices import TokenCounts
from shared.models.dialects.requests import Json, ParsedRequest

BYTES_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4
TOKENS_PER_IMAGE = 1_100  # of a large picture in full detail
MEDIA_BYTES_PER_TOKEN = 64  # of audio or documents in base64
_READ_FIELDS = (
    "messages",
    "input",
    "instructions",
    "system",
    "tools",
    "functions",
    "response_format",
    "text",
    "output_config",
    "prediction",
)
# The places at which OpenAI's two dialects, DeepSeek and Anthropic report each number. The first place found counts.
_PLACES: dict[str, tuple[tuple[str, ...], ...]] = {
    "prompt_tokens": (("prompt_tokens",), ("input_tokens",)),
    "completion_tokens": (("completion_tokens",), ("output_tokens",)),
    "cached_tokens": (
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("prompt_cache_hit_tokens",),
        ("cache_read_input_tokens",),
    ),
    "cache_write_tokens": (
        ("prompt_tokens_details", "cache_write_tokens"),
        ("input_tokens_details", "cache_write_tokens"),
        ("cache_creation_input_tokens",),
    ),
    "reasoning_tokens": (
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
        ("reasoning_tokens",),
    ),
}


def read_usage(usage: Any) -> TokenCounts | None:
    """Parse a usage object of any dialect. Return None if the object or one of its sides (input, output) is absent.

    Returns the counts as reported. `TokenCounts.is_plausible` checks whether they are possible.
    """
    if not isinstance(usage, dict):
        return None
    found = {name: _find(usage, places) for name, places in _PLACES.items()}
    cached, written = found["cached_tokens"] or 0, found["cache_write_tokens"] or 0
    reasoning = found["reasoning_tokens"] or 0
    prompt, completion = found["prompt_tokens"], found["completion_tokens"]
    if prompt is not None and _counts_caches_apart(usage):
        # Add the cached tokens, because `TokenCounts` includes them in the prompt, as OpenAI does.
        prompt += cached + written
    total = _find(usage, (("total_tokens",),))
    rest = None if prompt is None or total is None or total < prompt else total - prompt
    if completion is None or completion + reasoning == rest:
        # Count the reasoning as part of the completion: some upstreams report both separately.
        completion = rest
    if prompt is None or completion is None:
        return None
    return TokenCounts(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
    )


def _counts_caches_apart(usage: Json) -> bool:
    """Return whether the report has Anthropic's form, in which `input_tokens` excludes cached tokens."""
    if "prompt_tokens" in usage or "input_tokens_details" in usage:
        return False
    return "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage


def chat_usage(counts: TokenCounts) -> Json:
    """Return the `usage` object of a chat completion."""
    return {
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.completion_tokens,
        "total_tokens": counts.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": counts.cached_tokens,
            "cache_write_tokens": counts.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
    }


def responses_usage(counts: TokenCounts) -> Json:
    """Return the `usage` object of a Response."""
    return {
        "input_tokens": counts.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": counts.cached_tokens,
            "cache_write_tokens": counts.cache_write_tokens,
        },
        "output_tokens": counts.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
        "total_tokens": counts.total_tokens,
    }


def messages_usage(counts: TokenCounts) -> Json:
    """Return the `usage` object of a message, in which `input_tokens` excludes cached tokens."""
    return {
        "input_tokens": counts.prompt_tokens - counts.cached_tokens - counts.cache_write_tokens,
        "cache_creation_input_tokens": counts.cache_write_tokens,
        "cache_read_input_tokens": counts.cached_tokens,
        "output_tokens": counts.completion_tokens,
        "output_tokens_details": {"thinking_tokens": counts.reasoning_tokens},
    }


def _find(usage: Json, places: tuple[tuple[str, ...], ...]) -> int | None:
    for place in places:
        value: Any = usage
        for name in place:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def estimate_prompt_tokens(parsed: ParsedRequest) -> int:
    """Estimate the number of tokens in a request's prompt, including tools and schemas."""
    given = [parsed.body[name] for name in _READ_FIELDS if name in parsed.body]
    messages = parsed.body.get("messages", parsed.body.get("input"))
    count = len(messages) if isinstance(messages, list) else 1
    return 3 + count * TOKENS_PER_MESSAGE + sum(_estimate_value(value) for value in given)


def estimate_completion_tokens(size_bytes: int) -> int:
    """Estimate the number of tokens in a completion of this size (`Translator.completion_size_bytes`)."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def utf8_size(text: str) -> int:
    """Return the size of a text in bytes of UTF-8, including lone surrogates, which JSON allows."""
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
    """Yield the kind and size of each text, image and other media in a JSON value. Does not recurse."""
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
    if kind in ("image_url", "input_image", "image"):
        return "image", 0
    if kind in ("input_audio", "file", "input_file") or (kind == "base64" and "media_type" in part):
        return "media", sum(size for _, size in _measure(list(part.values())))
    return None
