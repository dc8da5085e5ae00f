"""Prices of which a test names what it is about: everything else is free."""

from shared.credits.prices import COMPONENTS, Prices


def prices_of(**components: int) -> Prices:
    return Prices(**{**dict.fromkeys(COMPONENTS, 0), **components})
