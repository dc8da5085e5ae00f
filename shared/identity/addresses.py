"""When two e-mail addresses are one: letters of ASCII count alike in both cases, and everything else as it is.

Unicode folds other letters onto those of ASCII, as the Kelvin sign onto `k`: who has such an address vouched for
would be taken for somebody else.
"""

from string import ascii_lowercase, ascii_uppercase

from sqlalchemy import ColumnElement, func

from shared.identity.tables import users

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def fold_address(address: str) -> str:
    """Give what an address has in common with those that are the same."""
    return address.translate(_LOWER)


def has_address(address: str) -> ColumnElement[bool]:
    """Hold for the user of this address; there is at most one."""
    return func.lower(users.c.email.collate("C")) == fold_address(address)
