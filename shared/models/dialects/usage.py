"""Token counts: read from whatever an upstream reports, written as each dialect writes them.

Upstreams name and nest the same five numbers differently, repeat them on every chunk, or report zeros for work that
they did; here they become one value or none. What they cost is for `shared/credits` to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shared.models.dialects.requests import Json

# Where each number may stand, the first one found counts: OpenAI's two dialects, DeepSeek, Anthropic's compatibility.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens of one call. Cached and cache-write tokens are part of the prompt's, reasoning of the completion's."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Tokens of prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


def read_usage(usage: Any) -> TokenCounts | None:
    """Read a usage object of either dialect; None where it is absent or does not count both sides."""
    if not isinstance(usage, dict):
        return None
    found = {name: _find(usage, places) for name, places in _PLACES.items()}
    prompt, completion = found["prompt_tokens"], found["completion_tokens"]
    total = _find(usage, (("total_tokens",),))
    if completion is None and prompt is not None and total is not None and total >= prompt:
        completion = total - prompt
    if prompt is None or completion is None:
        return None
    return TokenCounts(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=min(found["cached_tokens"] or 0, prompt),
        cache_write_tokens=min(found["cache_write_tokens"] or 0, prompt),
        reasoning_tokens=min(found["reasoning_tokens"] or 0, completion),
    )


def chat_usage(counts: TokenCounts) -> Json:
    """Write counts as a chat completion's `usage`."""
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
    """Write counts as a Response's `usage`."""
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


def _find(usage: Json, places: tuple[tuple[str, ...], ...]) -> int | None:
    for place in places:
        value: Any = usage
        for name in place:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
