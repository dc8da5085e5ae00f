"""The keys of Postgres' advisory locks, all of them: two uses of one number would wait for each other.

A key never changes: the previous release's processes take the same lock during an upgrade.
"""

from enum import IntEnum
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import text

_TAKE = text("SELECT pg_advisory_xact_lock(:key)")
_TAKE_FOR = text("SELECT pg_advisory_xact_lock(hashtextextended(:of, :key))")


class AdvisoryLock(IntEnum):
    """What one transaction at a time may do in a database."""

    MIGRATIONS = 7_140_331_001
    SIGNING_KEYS = 7_140_331_002
    BOOTSTRAP = 7_140_331_003
    IMPORT_CLAIMS = 7_140_331_004
    DELIVERY_CLAIMS = 7_140_331_005
    DEFAULT_AGENT = 7_140_331_007
    DELIVERY_ORDER = 7_140_331_008
    """Of one destination each (`take_for`)."""
    RESUMABLE_UPLOADS = 7_140_331_009
    """Of one payer, and of one executor each (`take_for`)."""


class _Executes(Protocol):
    """A session or a connection within a transaction."""

    def execute(self, statement: Any, parameters: Any, /) -> Any:
        """Run a statement."""


def take(transaction: _Executes, lock: AdvisoryLock) -> None:
    """Wait until no other transaction has the lock, and keep it until this one ends."""
    transaction.execute(_TAKE, {"key": int(lock)})


def take_for(transaction: _Executes, lock: AdvisoryLock, of: UUID) -> None:
    """Wait until no other transaction has this lock of that row, and keep it until this one ends."""
    transaction.execute(_TAKE_FOR, {"key": int(lock), "of": str(of)})
