"""What a call consumed, what a model costs, and the one rule that makes an amount of both.

`Prices` travels whole, from the catalog's file to the hold, the dispatch and what is shown. A new component is a
field of it, a term of `Prices.price` and of `credits_cost` in SQL, an argument of `credits_hold` and a column of
`invocations`. What has no price of its own costs as what it is a part of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

from shared.credits.amounts import MAX_PRICE, MAX_TOKENS, PRICED_TOKENS, format_credits, parse_credits


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens of one call.

    Those read from a cache and those written to it are distinct parts of the prompt; reasoning is a part of the
    completion.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Tokens of prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def is_plausible(self) -> bool:
        """Whether the parts fit into their wholes, and those into the bounds in which a price is exact."""
        parts = (self.cached_tokens, self.cache_write_tokens, self.reasoning_tokens)
        return (
            min(parts) >= 0
            and self.cached_tokens + self.cache_write_tokens <= self.prompt_tokens <= MAX_TOKENS
            and self.reasoning_tokens <= self.completion_tokens <= MAX_TOKENS
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a model costs: µcr for a million tokens of each kind, and `request` µcr for a call that counts any."""

    prompt: int
    completion: int
    cached_prompt: int
    cache_write: int
    reasoning: int
    request: int

    @classmethod
    def of(cls, row: object) -> Prices:
        """Read them off an invocation's row, or a catalog's table, which has `<component>_price` for each."""
        return cls.complete({name: getattr(row, f"{name}_price") for name in COMPONENTS})

    @classmethod
    def complete(cls, given: Mapping[str, int | None]) -> Prices:
        """Fill in those that are not given, and leave out unknown ones; prompt and completion must be given."""
        named = {name: price for name in COMPONENTS if (price := given.get(name)) is not None}
        return cls(**{"request": 0, **{part: named[whole] for part, whole in _PART_OF.items()}, **named})

    def price(self, counts: TokenCounts) -> int:
        """Give what a call of plausible counts costs, in µcr: the exact sum, rounded up once."""
        uncached = counts.prompt_tokens - counts.cached_tokens - counts.cache_write_tokens
        exact = (
            uncached * self.prompt
            + counts.cached_tokens * self.cached_prompt
            + counts.cache_write_tokens * self.cache_write
            + (counts.completion_tokens - counts.reasoning_tokens) * self.completion
            + counts.reasoning_tokens * self.reasoning
            + (self.request * PRICED_TOKENS if counts.total_tokens else 0)
        )
        return -(-exact // PRICED_TOKENS)

    def price_at_most(self, *, prompt_tokens: int, completion_tokens: int) -> int:
        """Give the most that so many tokens may cost, whatever of them is cached, written to a cache or reasoned."""
        dearest = replace(
            self,
            prompt=max(self.prompt, self.cached_prompt, self.cache_write),
            completion=max(self.completion, self.reasoning),
        )
        return dearest.price(TokenCounts(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens))

    def columns(self) -> dict[str, int]:
        """Give them by the columns of `invocations`, which are the arguments of `credits_hold` too."""
        return {f"{name}_price": value for name, value in asdict(self).items()}

    def show(self) -> dict[str, str]:
        """Write them as decimal credits, by component."""
        return {name: format_credits(value) for name, value in asdict(self).items()}


COMPONENTS = tuple(field.name for field in fields(Prices))
_PART_OF = {"cached_prompt": "prompt", "cache_write": "prompt", "reasoning": "completion"}
MAX_COST = 2 * MAX_TOKENS * MAX_PRICE // PRICED_TOKENS + MAX_PRICE
"""µcr of one call: so many tokens of prompt and completion at the highest price, and the call itself."""


def parse_price(value: object) -> int:
    """Read one price, credits for a million tokens or for a call as a decimal string. Raises ValueError."""
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
