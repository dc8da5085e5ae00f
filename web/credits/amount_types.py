"""Amounts of credits in JSON. Amounts are decimal strings, because clients may round a JSON number."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from shared.credits.amounts import CREDITS_PATTERN, format_credits, parse_credits, parse_signed_credits


def _parse_credits(value: object, parse: Callable[[str], int] = parse_credits) -> int:
    """Parse an amount. The value must be a string."""
    # Refuse a JSON number: it may have been rounded before it was sent.
    if not isinstance(value, str):
        raise PydanticCustomError("credits", 'must be a decimal string such as "12.5"')
    try:
        return parse(value)
    except ValueError as error:
        raise PydanticCustomError("credits", "{reason}", {"reason": str(error)}) from error


CreditsInput = Annotated[
    int,
    BeforeValidator(_parse_credits),
    WithJsonSchema({"type": "string", "pattern": CREDITS_PATTERN, "examples": ["12.5"]}),
]
SignedCreditsInput = Annotated[
    int,
    BeforeValidator(partial(_parse_credits, parse=parse_signed_credits)),
    WithJsonSchema({"type": "string", "pattern": f"^-?{CREDITS_PATTERN[1:]}", "examples": ["-12.5"]}),
]
# Balances and adjustments may be negative, so this pattern allows a minus.
Credits = Annotated[
    int,
    PlainSerializer(format_credits, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]{1,6})?$"}),
]
