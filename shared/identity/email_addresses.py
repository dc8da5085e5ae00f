"""When two e-mail addresses are one: the case of letters of ASCII does not count (`shared/identity/ascii_case.py`)."""

from sqlalchemy import ColumnElement, func

from shared.identity.ascii_case import fold_ascii
from shared.identity.tables import users


def email_matches(address: str) -> ColumnElement[bool]:
    """Hold for the user of this address; there is at most one."""
    return func.lower(users.c.email.collate("C")) == fold_ascii(address)
