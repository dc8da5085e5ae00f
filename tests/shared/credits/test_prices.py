"""The price of a call: exact, rounded up once, and the same in Python and in Postgres."""

import json
from decimal import ROUND_CEILING, Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from shared.credits.amounts import MAX_AMOUNT, MAX_BALANCE, MAX_PRICE, MAX_TOKENS
from shared.credits.prices import COMPONENTS, MAX_COST, Prices, TokenCounts, parse_price
from shared.database import Database
from tests.support.prices import prices_of

TOKENS = st.integers(0, MAX_TOKENS)
PRICES = st.integers(0, MAX_PRICE)


@given(TOKENS, TOKENS, PRICES, PRICES)
def test_a_price_is_the_exact_sum_rounded_up_once(
    prompt: int, completion: int, prompt_price: int, completion_price: int
) -> None:
    exact = (Decimal(prompt) * prompt_price + Decimal(completion) * completion_price) / 1_000_000
    prices = prices_of(prompt=prompt_price, completion=completion_price)
    charged = prices.price(TokenCounts(prompt_tokens=prompt, completion_tokens=completion))
    assert charged == exact.to_integral_value(ROUND_CEILING)


def test_the_dearest_call_costs_no_more_than_the_named_bound() -> None:
    most = TokenCounts(
        prompt_tokens=MAX_TOKENS,
        completion_tokens=MAX_TOKENS,
        cached_tokens=MAX_TOKENS,
        reasoning_tokens=MAX_TOKENS,
    )
    assert Prices(**dict.fromkeys(COMPONENTS, MAX_PRICE)).price(most) <= MAX_COST
    assert MAX_BALANCE + MAX_AMOUNT + MAX_COST < 2**63


@pytest.mark.parametrize("spelling", ["-1", "1e3", "1000000.1", "1.0000001", "", 1, 1.5, None])
def test_a_price_that_is_not_a_decimal_string_is_refused(spelling: object) -> None:
    with pytest.raises(ValueError, match="must be a string of credits"):
        parse_price(spelling)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TOKENS, TOKENS, PRICES, PRICES)
def test_the_database_prices_alike(
    database: Database, prompt: int, completion: int, prompt_price: int, completion_price: int
) -> None:
    prices = prices_of(prompt=prompt_price, completion=completion_price)
    here = prices.price(TokenCounts(prompt_tokens=prompt, completion_tokens=completion))
    with database.autocommit() as session:
        there = session.execute(
            text(
                "SELECT credits_cost(i, :p, :c, 0, 0) FROM jsonb_populate_record(NULL::invocations, :prices) AS i"
            ),
            {"p": prompt, "c": completion, "prices": json.dumps(prices.columns())},
        ).scalar()
    assert there == here
