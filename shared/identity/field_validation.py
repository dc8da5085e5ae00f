"""Validate names, e-mail addresses and deadlines in administrative requests. All functions raise ValidationFailed."""

import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, literal, select

from shared.db.database import Session
from shared.db.schema import instant
from shared.errors import invalid_field

MAX_NAME_CHARACTERS = 200
MAX_NETWORKS = 20
# The pattern excludes only impossible addresses: a stricter one would refuse valid addresses, and only a mail could
# verify an address.
_EMAIL = re.compile(r"[^\s@\x00-\x1f\x7f]{1,64}@[^\s@\x00-\x1f\x7f]{1,253}")
_NETWORK = re.compile(r"[a-z][a-z0-9._-]{0,62}", re.ASCII)


def require_name(value: str, *, field: str = "name") -> str:
    """Return a name in NFC without surrounding space. It must have 1 to 200 printable characters."""
    # Normalize to NFC, so that names that look equal are stored as equal text.
    name = unicodedata.normalize("NFC", value).strip()
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
        raise invalid_field(field, f"must have 1 to {MAX_NAME_CHARACTERS} printable characters")
    return name


def require_email(value: str) -> str:
    """Return an e-mail address unchanged if it is well formed; comparisons ignore the case of ASCII letters."""
    if _EMAIL.fullmatch(value) is None:
        raise invalid_field("email", "must be an e-mail address")
    return value


def require_networks(values: Sequence[str]) -> list[str]:
    """Return the names of a distribution's messaging networks, sorted and without duplicates."""
    networks = sorted(set(values))
    if not 1 <= len(networks) <= MAX_NETWORKS or any(_NETWORK.fullmatch(name) is None for name in networks):
        message = f"must be 1 to {MAX_NETWORKS} names of lower-case letters, digits, '.', '_' and '-'"
        raise invalid_field("networks", message)
    return networks


def require_future(session: Session, expires_at: datetime | None) -> None:
    """Check, by the database's clock, that a deadline is in the future; None means no deadline."""
    if expires_at is None:
        return
    # Query the database's clock, which later decides expiry; a host's clock may differ from it.
    deadline = literal(expires_at, instant("deadline").type)
    if not session.execute(select(deadline > func.now())).scalar():
        raise invalid_field("expiresAt", "must be in the future")
