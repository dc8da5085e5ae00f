"""Exact amounts: whole micro-credits (µcr), their bounds, and their decimal form.

A credit is a million µcr. A price is in µcr per million tokens, or per GiB stored for 30 days. Amounts are
integers. Their bounds keep every sum within the database's 64 bits.
"""

import re

MICRO = 1_000_000
"""The number of µcr in one credit."""
PRICED_TOKENS = 1_000_000
"""The number of tokens to which a price applies."""

MAX_TOKENS = 1_000_000_000
"""Tokens of one kind in one call; larger counts reported by a provider are replaced by an estimate."""
MAX_PRICE = 1_000_000 * MICRO
"""The highest price of a million tokens, in µcr."""
MAX_AMOUNT = 1_000_000_000 * MICRO
"""The highest amount of one top-up, overdraft or spending limit, in µcr."""
MAX_STORAGE_PRICE = 10_000 * MICRO
"""µcr for a GiB for 30 days; below it no day of 2^63 bytes costs more than a balance can be."""
MAX_BALANCE = 4_000_000_000_000 * MICRO
"""The highest balance of either sign, in µcr. Within 2^63 this leaves the same amount again for holds."""

CREDITS_PATTERN = r"^(?:0|[1-9][0-9]{0,9})(?:\.[0-9]{1,6})?$"
_CREDITS = re.compile(CREDITS_PATTERN, re.ASCII)


def parse_credits(text: str) -> int:
    """Return decimal credits as µcr. Raises ValueError for another format, over six decimals or above MAX_AMOUNT."""
    # Refuse a final newline separately, because `$` in the pattern also matches before it.
    if _CREDITS.fullmatch(text) is None or text.endswith("\n"):
        raise ValueError("must be an amount of credits such as 12.5, with at most six fraction digits")
    whole, _, fraction = text.partition(".")
    amount = int(whole) * MICRO + int(fraction.ljust(6, "0"))
    if amount > MAX_AMOUNT:
        raise ValueError(f"must be at most {format_credits(MAX_AMOUNT)} credits")
    return amount


def parse_signed_credits(text: str) -> int:
    """Return decimal credits of either sign as µcr. Raises ValueError as `parse_credits` does."""
    return -parse_credits(text[1:]) if text.startswith("-") else parse_credits(text)


def format_credits(amount: int) -> str:
    """Return µcr as decimal credits without trailing zeros."""
    whole, fraction = divmod(abs(amount), MICRO)
    digits = f"{whole}.{fraction:06}".rstrip("0").rstrip(".") if fraction else str(whole)
    return f"-{digits}" if amount < 0 else digits
