from decimal import ROUND_CEILING, Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from shared.credits.amounts import (
    MAX_AMOUNT,
    MAX_BALANCE,
    MAX_COST,
    MAX_PRICE,
    MAX_TOKENS,
    format_credits,
    parse_credits,
    price,
)
from shared.database import Database

TOKENS = st.integers(0, MAX_TOKENS)
PRICES = st.integers(0, MAX_PRICE)


@given(st.integers(0, MAX_AMOUNT))
def test_what_is_written_is_read_again(amount: int) -> None:
    assert parse_credits(format_credits(amount)) == amount


@given(st.integers(-MAX_BALANCE, MAX_BALANCE))
def test_an_amount_is_written_as_the_decimal_it_is(amount: int) -> None:
    assert Decimal(format_credits(amount)) == Decimal(amount) / 1_000_000


@pytest.mark.parametrize(
    "spelling",
    [
        "",
        "-1",
        "+1",
        "1.",
        ".5",
        "01",
        "1e3",
        "1_000",
        " 1",
        "1\n",
        "1.0000001",
        "NaN",
        "٣",
        "1000000000.000001",
    ],
)
def test_other_spellings_are_refused(spelling: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_credits(spelling)


@given(TOKENS, TOKENS, PRICES, PRICES)
def test_a_price_is_the_exact_sum_rounded_up_once(
    prompt: int, completion: int, prompt_price: int, completion_price: int
) -> None:
    exact = (Decimal(prompt) * prompt_price + Decimal(completion) * completion_price) / 1_000_000
    charged = price(prompt, completion, prompt_price=prompt_price, completion_price=completion_price)
    assert charged == exact.to_integral_value(ROUND_CEILING)


def test_the_dearest_call_costs_the_named_bound() -> None:
    dearest = price(MAX_TOKENS, MAX_TOKENS, prompt_price=MAX_PRICE, completion_price=MAX_PRICE)
    assert dearest == MAX_COST
    assert MAX_BALANCE + MAX_AMOUNT + MAX_COST < 2**63


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TOKENS, TOKENS, PRICES, PRICES)
def test_the_database_prices_alike(
    database: Database, prompt: int, completion: int, prompt_price: int, completion_price: int
) -> None:
    here = price(prompt, completion, prompt_price=prompt_price, completion_price=completion_price)
    values = {"p": prompt, "c": completion, "pp": prompt_price, "cp": completion_price}
    with database.autocommit() as session:
        there = session.execute(text("SELECT credits_price(:p, :c, :pp, :cp)"), values).scalar()
    assert there == here
