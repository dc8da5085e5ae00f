"""Find a user by e-mail address, ignoring the case of ASCII letters (`shared/identity/ascii_case.py`)."""

from sqlalchemy import ColumnElement, func

from shared.identity.ascii_case import fold_ascii
from shared.identity.tables import users


def email_matches(address: str) -> ColumnElement[bool]:
    """Return the SQL condition that a user has this address. A unique index allows at most one such user."""
    # Use the collation "C": it lowers ASCII letters only, as `fold_ascii` does, and matches the index
    # `uq_users_email`.
    return func.lower(users.c.email.collate("C")) == fold_ascii(address)
