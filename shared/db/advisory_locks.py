"""The keys of all Postgres advisory locks. They are in one module, so that no two kinds of work use the same key.

A key never changes, because processes of the previous release take the same lock during an upgrade.
"""

from enum import IntEnum
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import text

_TAKE = text("SELECT pg_advisory_xact_lock(:key)")
# Use the key as the seed of the hash, so that two kinds of locks on the same id do not collide.
_TAKE_FOR = text("SELECT pg_advisory_xact_lock(hashtextextended(:of, :key))")


class AdvisoryLock(IntEnum):
    """A kind of work that only one transaction at a time may do in a database."""

    MIGRATIONS = 7_140_331_001
    SIGNING_KEYS = 7_140_331_002
    BOOTSTRAP = 7_140_331_003
    IMPORT_CLAIMS = 7_140_331_004
    DELIVERY_CLAIMS = 7_140_331_005
    DEFAULT_AGENT = 7_140_331_007
    DELIVERY_ORDER = 7_140_331_008
    """One lock for each destination (`take_for`)."""
    RESUMABLE_UPLOADS = 7_140_331_009
    """One lock for each payer and for each executor (`take_for`)."""


class _Executes(Protocol):
    """A session or connection in a transaction."""

    def execute(self, statement: Any, parameters: Any, /) -> Any:
        """Run a statement."""


def take(transaction: _Executes, lock: AdvisoryLock) -> None:
    """Wait for the lock and hold it until this transaction ends."""
    transaction.execute(_TAKE, {"key": int(lock)})


def take_for(transaction: _Executes, lock: AdvisoryLock, of: UUID) -> None:
    """Wait for the lock of one row's id and hold it until this transaction ends."""
    transaction.execute(_TAKE_FOR, {"key": int(lock), "of": str(of)})
