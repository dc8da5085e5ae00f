"""What a call consumed, what a model costs, and the one rule that makes an amount of both.

`Prices` travels whole, from the catalog's file to the hold, the dispatch and what is shown. A new component is a
field of it, a term of `Prices.price` and of `credits_cost` in SQL, an argument of `credits_hold` and a column of
`invocations`. None has a default: what is free says so.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from shared.credits.amounts import MAX_PRICE, MAX_TOKENS, PRICED_TOKENS, format_credits, parse_credits


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens of one call; cached ones are part of the prompt, reasoning ones of the completion."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def is_plausible(self) -> bool:
        """Whether all counts lie within the bounds in which a price is exact."""
        counts = (self.prompt_tokens, self.completion_tokens, self.cached_tokens, self.reasoning_tokens)
        return all(0 <= count <= MAX_TOKENS for count in counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a model costs: µcr for a million tokens of each kind."""

    prompt: int
    completion: int

    @classmethod
    def of(cls, row: object) -> Prices:
        """Read them off an invocation's row, or a catalog's table, which has `<component>_price` for each."""
        return cls(**{name: getattr(row, f"{name}_price") for name in COMPONENTS})

    def price(self, counts: TokenCounts) -> int:
        """Give what a call costs, in µcr: the exact sum, rounded up once."""
        exact = counts.prompt_tokens * self.prompt + counts.completion_tokens * self.completion
        return -(-exact // PRICED_TOKENS)

    def columns(self) -> dict[str, int]:
        """Give them by the columns of `invocations`, which are the arguments of `credits_hold` too."""
        return {f"{name}_price": value for name, value in asdict(self).items()}

    def show(self) -> dict[str, str]:
        """Write them as decimal credits, by component."""
        return {name: format_credits(value) for name, value in asdict(self).items()}


COMPONENTS = tuple(field.name for field in fields(Prices))
MAX_COST = len(COMPONENTS) * MAX_TOKENS * MAX_PRICE // PRICED_TOKENS
"""µcr of one call: so many tokens of each kind at the highest price."""


def parse_price(value: object) -> int:
    """Read one price, credits for a million tokens as a decimal string. Raises ValueError."""
    try:
        price = parse_credits(value) if isinstance(value, str) else None
    except ValueError:
        price = None
    if price is None or price > MAX_PRICE:
        raise ValueError(
            'must be a string of credits per million tokens with at most six decimals, as "1.25", '
            f"and at most {format_credits(MAX_PRICE)}"
        )
    return price
