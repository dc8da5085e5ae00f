"""The token counts of a call, the prices of a model, and the rule that computes the cost.

`Prices` is passed as a whole from the catalog's file to the hold, the dispatch and the API. A new component of the
price needs a field in this class, a term in `Prices.price` and in `credits_cost` (SQL), an argument of
`credits_hold` and a column of `invocations`. README.md lists the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

from shared.credits.amounts import MAX_PRICE, MAX_TOKENS, PRICED_TOKENS, format_credits, parse_credits


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """The tokens of one call.

    Cached tokens and cache-write tokens are disjoint parts of the prompt; reasoning tokens are a part of the
    completion.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """The tokens of prompt and completion."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def is_plausible(self) -> bool:
        """Whether no part exceeds its whole (prompt or completion), and both are within the bounds of exact prices."""
        parts = (self.cached_tokens, self.cache_write_tokens, self.reasoning_tokens)
        return (
            min(parts) >= 0
            and self.cached_tokens + self.cache_write_tokens <= self.prompt_tokens <= MAX_TOKENS
            and self.reasoning_tokens <= self.completion_tokens <= MAX_TOKENS
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The prices of a model: µcr per million tokens of each kind, and `request` µcr per call that consumed any."""

    prompt: int
    completion: int
    cached_prompt: int
    cache_write: int
    reasoning: int
    request: int

    @classmethod
    def of(cls, row: object) -> Prices:
        """Return the prices in an object's attributes `<component>_price`; the object may be an invocation's row."""
        return cls.complete({name: getattr(row, f"{name}_price") for name in COMPONENTS})

    @classmethod
    def complete(cls, given: Mapping[str, int | None]) -> Prices:
        """Return prices in which each missing component is filled in. The prices of prompt and completion are required.

        A kind of prompt token without a price costs as much as a prompt token; likewise for the completion.
        """
        # Compare with None: a part may have the price 0, and only None means that it has no price of its own.
        named = {name: price for name in COMPONENTS if (price := given.get(name)) is not None}
        return cls(**{"request": 0, **{part: named[whole] for part, whole in _PART_OF.items()}, **named})

    def price(self, counts: TokenCounts) -> int:
        """Return the cost of plausible token counts in µcr: the exact sum, rounded up once."""
        uncached = counts.prompt_tokens - counts.cached_tokens - counts.cache_write_tokens
        exact = (
            uncached * self.prompt
            + counts.cached_tokens * self.cached_prompt
            + counts.cache_write_tokens * self.cache_write
            + (counts.completion_tokens - counts.reasoning_tokens) * self.completion
            + counts.reasoning_tokens * self.reasoning
            + (self.request * PRICED_TOKENS if counts.total_tokens else 0)
        )
        # Negate before and after the floor division, which then rounds up without a float.
        return -(-exact // PRICED_TOKENS)

    def price_at_most(self, *, prompt_tokens: int, completion_tokens: int) -> int:
        """Return the highest possible cost of these token numbers, for any share of cached or reasoning tokens."""
        dearest = replace(
            self,
            prompt=max(self.prompt, self.cached_prompt, self.cache_write),
            completion=max(self.completion, self.reasoning),
        )
        return dearest.price(TokenCounts(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens))

    def columns(self) -> dict[str, int]:
        """Return the prices by their column in `invocations`. The arguments of `credits_hold` have the same names."""
        return {f"{name}_price": value for name, value in asdict(self).items()}

    def show(self) -> dict[str, str]:
        """Return the prices as decimal credits, by component."""
        return {name: format_credits(value) for name, value in asdict(self).items()}


COMPONENTS = tuple(field.name for field in fields(Prices))
_PART_OF = {"cached_prompt": "prompt", "cache_write": "prompt", "reasoning": "completion"}
MAX_COST = 2 * MAX_TOKENS * MAX_PRICE // PRICED_TOKENS + MAX_PRICE
"""The highest cost of one call in µcr: MAX_TOKENS of prompt and of completion at MAX_PRICE, and the price per call."""


def parse_price(value: object) -> int:
    """Parse a decimal string of credits and return the price in µcr. Raises ValueError."""
    try:
        price = parse_credits(value) if isinstance(value, str) else None
    except ValueError:
        price = None
    if price is None or price > MAX_PRICE:
        raise ValueError(
            'must be a string of credits with at most six decimals, as "1.25", '
            f"and at most {format_credits(MAX_PRICE)}"
        )
    return price
