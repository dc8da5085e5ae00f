"""A month of files, lived through moment by moment: rows as the service writes them, with timestamps of that time.

`Month` plays uploads, replaces, renewals, deletes, deadlines and sweeps, and keeps for itself what was stored from when
to when; `expected_costs` works out from that alone, in whole numbers, what each day has to cost. The accrual looks at
the database "as of" a moment of the month, by the slack that it is given.
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text

from shared.database import Database
from shared.files.storage_charges import accrue_storage
from shared.ids import new_id

GIB_AND_30_DAYS = 1024**3 * 30 * 86_400_000_000
MICROSECOND = timedelta(microseconds=1)
DAY = timedelta(days=1)
GRACE = timedelta(days=14)


@dataclass(kw_only=True)
class Stored:
    """One version: its bytes, and since when and until when it was stored."""

    byte_size: int
    since: datetime


@dataclass(kw_only=True)
class Kept:
    """One file, as the month knows it."""

    id: UUID
    payer_id: UUID
    deadline: datetime | None
    versions: list[Stored] = field(default_factory=list)
    deleted_at: datetime | None = None
    is_swept: bool = False

    @property
    def ends_at(self) -> datetime | None:
        return self.deleted_at or self.deadline

    def is_alive(self, at: datetime) -> bool:
        return self.ends_at is None or self.ends_at > at


class Month:
    """Files of some payers, and the clock of the month they live in."""

    def __init__(self, database: Database, payers: list[UUID], *, starts_at: datetime) -> None:
        self.database = database
        self.payers = payers
        self.files: list[Kept] = []
        self.prices: dict[date, int] = {}
        self.starts_at = starts_at

    def upload(
        self, at: datetime, byte_size: int, *, payer_id: UUID | None = None, deadline: datetime | None = None
    ) -> Kept:
        kept = Kept(id=new_id(), payer_id=payer_id or random.choice(self.payers), deadline=deadline)
        self._run(
            "INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state,"
            " current_version_id, revision, retention_expires_at, created_at) VALUES (:id, :somebody, :payer,"
            " 'AgentArtifact', 'DaemonIdentity', :somebody, 'Available', :id, 1, :deadline, :at)",
            id=kept.id,
            somebody=uuid4(),
            payer=kept.payer_id,
            deadline=deadline,
            at=at,
        )
        self.files.append(kept)
        self.replace(kept, at, byte_size)
        return kept

    def replace(self, kept: Kept, at: datetime, byte_size: int) -> None:
        kept.versions.append(Stored(byte_size=byte_size, since=at))
        self._run(
            "INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256,"
            " created_at) VALUES (:id, :file, :revision, 'a', 'text/plain', :size, sha256(''), :at)",
            id=new_id(),
            file=kept.id,
            revision=len(kept.versions),
            size=byte_size,
            at=at,
        )

    def renew(self, kept: Kept, deadline: datetime | None) -> None:
        kept.deadline = deadline
        self._run("UPDATE files SET retention_expires_at = :at WHERE id = :id", at=deadline, id=kept.id)

    def delete(self, kept: Kept, at: datetime) -> None:
        kept.deleted_at = at
        self._run("UPDATE files SET state = 'Deleted', ended_at = :at WHERE id = :id", at=at, id=kept.id)

    def sweep(self, at: datetime) -> None:
        """End what is due, as the sweep does: late, but with the deadline's own moment."""
        self._run(
            "UPDATE files SET state = 'Expired', ended_at = retention_expires_at"
            " WHERE state = 'Available' AND retention_expires_at <= :at",
            at=at,
        )

    def accrue(self, at: datetime, *, price: int = 0, grace: timedelta = GRACE) -> int:
        """Let the beat run at this moment of the month; days that this run finds over have this price."""
        for day in days_between(self.starts_at, at):
            self.prices.setdefault(day, price)
        return accrue_storage(self.database, price=price, grace=grace, slack=datetime.now(UTC) - at)

    def expected_time(self, payer_id: UUID, day: date) -> int:
        """The byte-microseconds of a day, from the moments in which things happened."""
        starts_at = datetime(day.year, day.month, day.day, tzinfo=UTC)
        total = 0
        for kept in self.files:
            if kept.payer_id == payer_id:
                until = min(kept.ends_at or starts_at + DAY, starts_at + DAY)
                for version in kept.versions:
                    since = max(version.since, starts_at)
                    total += version.byte_size * max(0, (until - since) // MICROSECOND)
        return total

    def expected_costs(self, payer_id: UUID, days: Iterable[date]) -> dict[date, int]:
        """What each day costs: the whole µcr that its end has over its beginning, counted from the first."""
        exact, costs = 0, {}
        for day in days:
            before = exact // GIB_AND_30_DAYS
            exact += self.expected_time(payer_id, day) * self.prices[day]
            costs[day] = exact // GIB_AND_30_DAYS - before
        return costs

    def charged_costs(self) -> dict[UUID, dict[date, int]]:
        """What the ledger says that each day cost."""
        rows = self._run(
            "SELECT organization_id, reference, -amount AS cost FROM ledger_entries WHERE kind = 'storage'"
        )
        costs: dict[UUID, dict[date, int]] = defaultdict(dict)
        for row in rows:
            costs[row.organization_id][date.fromisoformat(row.reference)] = row.cost
        return costs

    def _run(self, statement: str, **values: object) -> list[Any]:
        plain = {name: str(value) if isinstance(value, UUID) else value for name, value in values.items()}
        with self.database.autocommit() as session:
            found = session.execute(text(statement), plain)
            return list(found.all()) if found.returns_rows else []


def days_between(first: datetime, last: datetime) -> list[date]:
    """The UTC days that begin at or after the one moment and are over at the other."""
    days, day = [], datetime(first.year, first.month, first.day, tzinfo=UTC)
    while day + DAY <= last:
        days.append(day.date())
        day += DAY
    return days
