"""Amounts are formatted as decimal strings and parsed only from that format."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.credits.amounts import MAX_AMOUNT, MAX_BALANCE, format_credits, parse_credits


@given(st.integers(0, MAX_AMOUNT))
def test_formatted_amount_parses_to_itself(amount: int) -> None:
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
