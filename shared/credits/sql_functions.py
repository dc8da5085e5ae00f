"""Call the SQL functions of credits. Each call has named arguments and is one round trip."""

from functools import lru_cache
from typing import Any
from uuid import UUID

from shared.db.database import Session


def call(session: Session, function: str, **arguments: Any) -> Any | None:
    """Return the only row of a function's result as a named tuple, or None if the result is empty."""
    statement = _statement(function, tuple(arguments))
    return session.fetch_one(statement, {name: _plain(value) for name, value in arguments.items()})


def call_count(session: Session, function: str, **arguments: Any) -> int:
    """Return the number that a function returns."""
    row = call(session, function, **arguments)
    return int(row[0]) if row is not None else 0


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


# Postgres casts a text parameter implicitly, but not an array of texts.
_CASTS = {"ids": "::uuid[]", "tokens": "::uuid[]"}


@lru_cache(maxsize=64)
def _statement(function: str, names: tuple[str, ...]) -> str:
    # Name the arguments, so that a new release can add parameters with defaults while the previous release still
    # runs.
    named = ", ".join(f"p_{name} => %({name})s{_CASTS.get(name, '')}" for name in names)
    return f"SELECT * FROM {function}({named})"  # noqa: S608 (names from this domain's code only)
