"""Exact amounts: whole micro-credits (µcr), their bounds, and their decimal form.

A credit is a million µcr. A price is in µcr per million tokens, or per GiB stored for 30 days. Amounts are
integers. Their bounds keep every sum within the database's 64 bits.
"""

import re

MICRO = 1_000_000
"""µcr in a credit."""
PRICED_TOKENS = 1_000_000
"""Tokens that a price is for."""

MAX_TOKENS = 1_000_000_000
"""Tokens of one kind in one call; larger counts reported by a provider are replaced by an estimate."""
MAX_PRICE = 1_000_000 * MICRO
"""µcr for a million tokens."""
MAX_AMOUNT = 1_000_000_000 * MICRO
"""µcr of one top-up, overdraft or spending limit."""
MAX_STORAGE_PRICE = 10_000 * MICRO
"""µcr for a GiB for 30 days; below it no day of 2^63 bytes costs more than a balance can be."""
MAX_BALANCE = 4_000_000_000_000 * MICRO
"""µcr of a balance, of either sign; 2^63 leaves as much again for what is held."""

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
