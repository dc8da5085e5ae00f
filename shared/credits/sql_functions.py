"""Call the server-side functions of credits: one round trip, arguments by name."""

from functools import lru_cache
from typing import Any
from uuid import UUID

from shared.db.database import Session


def call(session: Session, function: str, **arguments: Any) -> Any | None:
    """Give the one row a function returns, a named tuple, or None where it returns a set and that is empty."""
    statement = _statement(function, tuple(arguments))
    return session.fetch_one(statement, {name: _plain(value) for name, value in arguments.items()})


def call_count(session: Session, function: str, **arguments: Any) -> int:
    """Give the number a function returns."""
    row = call(session, function, **arguments)
    return int(row[0]) if row is not None else 0


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


# Postgres does not take an array of texts for one of another type, as it does a single text.
_CASTS = {"ids": "::uuid[]", "tokens": "::uuid[]"}


@lru_cache(maxsize=64)
def _statement(function: str, names: tuple[str, ...]) -> str:
    named = ", ".join(f"p_{name} => %({name})s{_CASTS.get(name, '')}" for name in names)
    return f"SELECT * FROM {function}({named})"  # noqa: S608 (names from this domain's code only)
