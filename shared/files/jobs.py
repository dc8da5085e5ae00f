"""The background work of the file domain; every one of these also runs on the schedule, without being asked."""

from __future__ import annotations

from dataclasses import dataclass

from shared.jobs import LEDGER, RETENTION, UPLOADS, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceStaged(Job):
    """Content has been committed and waits to be brought to its final place."""

    kind = "files.place_staged"
    queue = UPLOADS


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectDoomed(Job):
    """Content has become unreachable and its bytes wait to be deleted."""

    kind = "files.collect_doomed"
    queue = RETENTION


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireDue(Job):
    """Deadlines have passed."""

    kind = "files.expire_due"
    queue = RETENTION


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStaging(Job):
    """Uploads may have died and left bytes that no row owns."""

    kind = "files.sweep_staging"
    queue = RETENTION


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubContent(Job):
    """Stored content may have rotted since it was last read."""

    kind = "files.scrub_content"
    queue = RETENTION


@dataclass(frozen=True, slots=True, kw_only=True)
class AccrueStorage(Job):
    """Bytes were stored while time passed, and a day may be over."""

    kind = "files.accrue_storage"
    queue = LEDGER


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveStorage(Job):
    """It is time to prove that what is measured of storage is what is stored."""

    kind = "files.prove_storage"
    queue = LEDGER


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRecords(Job):
    """Operation records and grants may have outlived their use."""

    kind = "files.purge_records"
    queue = RETENTION
