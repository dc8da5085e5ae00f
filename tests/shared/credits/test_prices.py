"""The price of a call: exact, rounded up once, and the same in Python and in Postgres."""

import json
from dataclasses import asdict
from decimal import ROUND_CEILING, Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from shared.credits.amounts import MAX_AMOUNT, MAX_BALANCE, MAX_PRICE, MAX_TOKENS
from shared.credits.prices import COMPONENTS, MAX_COST, Prices, TokenCounts, parse_price
from shared.db.database import Database
from tests.support.models.prices import prices_of

PRICES = st.builds(Prices, **dict.fromkeys(COMPONENTS, st.integers(0, MAX_PRICE)))
_PARTS = ("uncached", "cached", "written", "said", "reasoned")


def counts_of(parts: dict[str, int]) -> TokenCounts:
    return TokenCounts(
        prompt_tokens=parts["uncached"] + parts["cached"] + parts["written"],
        completion_tokens=parts["said"] + parts["reasoned"],
        cached_tokens=parts["cached"],
        cache_write_tokens=parts["written"],
        reasoning_tokens=parts["reasoned"],
    )


PARTS = st.fixed_dictionaries(dict.fromkeys(_PARTS, st.integers(0, MAX_TOKENS // 3)))


@given(PARTS, PRICES)
def test_a_price_is_the_exact_sum_of_its_parts_rounded_up_once(parts: dict[str, int], prices: Prices) -> None:
    of_each = (prices.prompt, prices.cached_prompt, prices.cache_write, prices.completion, prices.reasoning)
    pairs = zip((parts[name] for name in _PARTS), of_each, strict=True)
    exact = sum((Decimal(tokens) * price for tokens, price in pairs), Decimal(0)) / 1_000_000
    if any(parts.values()):
        exact += prices.request
    counts = counts_of(parts)
    assert counts.is_plausible
    assert prices.price(counts) == exact.to_integral_value(ROUND_CEILING)


@given(PARTS, PRICES)
def test_price_at_most_covers_every_division_of_the_tokens(parts: dict[str, int], prices: Prices) -> None:
    counts = counts_of(parts)
    most = prices.price_at_most(
        prompt_tokens=counts.prompt_tokens, completion_tokens=counts.completion_tokens
    )
    assert most >= prices.price(counts)
    assert most <= MAX_COST


def test_a_call_without_tokens_costs_nothing() -> None:
    assert prices_of(request=7).price(TokenCounts(prompt_tokens=0, completion_tokens=0)) == 0


def test_a_part_without_a_price_costs_as_its_whole() -> None:
    completed = Prices.complete({"prompt": 2, "completion": 3, "cache_write": None, "reasoning": 0})
    assert completed == Prices(prompt=2, completion=3, cached_prompt=2, cache_write=2, reasoning=0, request=0)


def test_a_price_that_is_not_known_is_left_out() -> None:
    assert Prices.complete({"prompt": 2, "completion": 3, "of_the_next_release": 7}) == Prices.complete(
        {"prompt": 2, "completion": 3}
    )


def test_most_expensive_call_fits_the_ledger() -> None:
    assert MAX_BALANCE + MAX_AMOUNT + MAX_COST < 2**63


@pytest.mark.parametrize(
    "counts",
    [
        TokenCounts(prompt_tokens=-1, completion_tokens=0),
        TokenCounts(prompt_tokens=MAX_TOKENS + 1, completion_tokens=0),
        TokenCounts(prompt_tokens=0, completion_tokens=MAX_TOKENS + 1),
        TokenCounts(prompt_tokens=3, completion_tokens=0, cached_tokens=2, cache_write_tokens=2),
        TokenCounts(prompt_tokens=3, completion_tokens=1, reasoning_tokens=2),
        TokenCounts(prompt_tokens=3, completion_tokens=1, cached_tokens=-1),
    ],
)
def test_counts_beyond_their_bounds_are_not_plausible(counts: TokenCounts) -> None:
    assert not counts.is_plausible


@pytest.mark.parametrize("spelling", ["-1", "1e3", "1000000.1", "1.0000001", "", 1, 1.5, None])
def test_a_price_that_is_not_a_decimal_string_is_refused(spelling: object) -> None:
    with pytest.raises(ValueError, match="must be a string of credits"):
        parse_price(spelling)


_COST = """
SELECT credits_cost(i, :prompt_tokens, :completion_tokens, :cached_tokens, :cache_write_tokens, :reasoning_tokens)
FROM jsonb_populate_record(NULL::invocations, :prices) AS i
"""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(PARTS, PRICES, st.sets(st.sampled_from(["cached_prompt", "cache_write", "reasoning"])))
def test_the_database_prices_alike(
    database: Database, parts: dict[str, int], prices: Prices, unnamed: set[str]
) -> None:
    """Rows of the previous release without prices of parts are included."""
    counts = counts_of(parts)
    columns = {
        name: value for name, value in prices.columns().items() if name.removesuffix("_price") not in unnamed
    }
    named = {name: value for name, value in asdict(prices).items() if name not in unnamed}
    with database.autocommit() as session:
        values = {**asdict(counts), "prices": json.dumps(columns)}
        there = session.execute(text(_COST), values).scalar()
    assert there == Prices.complete(named).price(counts)
