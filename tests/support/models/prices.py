"""Prices for tests: a test names the prices it needs, and all others are zero."""

from shared.credits.prices import COMPONENTS, Prices


def prices_of(**components: int) -> Prices:
    return Prices(**{**dict.fromkeys(COMPONENTS, 0), **components})
