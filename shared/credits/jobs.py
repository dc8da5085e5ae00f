"""The background work of credits; all of it runs on the schedule only."""

from __future__ import annotations

from dataclasses import dataclass

from shared.jobs import LEDGER, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOverdueHolds(Job):
    """Accepted calls may have waited too long for a worker, and workers may have fallen silent."""

    kind = "credits.release_overdue_holds"
    queue = LEDGER


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleUnresolved(Job):
    """Calls of dead workers may have reached the end of their grace, and are charged by estimate."""

    kind = "credits.settle_unresolved"
    queue = LEDGER


@dataclass(frozen=True, slots=True, kw_only=True)
class RollUpUsage(Job):
    """The hourly sums may lag behind the records."""

    kind = "credits.roll_up_usage"
    queue = LEDGER


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveLedger(Job):
    """It is time to prove that entries, balances and usage agree."""

    kind = "credits.prove_ledger"
    queue = LEDGER


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeInvocations(Job):
    """Ended invocations may have outlived their use."""

    kind = "credits.purge_invocations"
    queue = LEDGER
