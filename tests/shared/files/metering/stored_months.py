"""A simulated month of files: rows as the service writes them, with timestamps of that time.

`Month` plays uploads, replaces, renewals, deletes, deadlines and sweeps, and records what was stored from when to when;
`expected_costs` computes from that alone, in whole numbers, the cost of each day. The accrual reads the database "as
of" a moment of the month, by its `slack` parameter.
"""

import random
from calendar import monthrange
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text

from shared.db.database import Database
from shared.files.metering.storage_charges import accrue_storage
from shared.files.metering.storage_prices import StorageMonth, StoragePrice
from shared.ids import new_id

GIB_AND_DAY = 1024**3 * 86_400_000_000
MICROSECOND = timedelta(microseconds=1)
DAY = timedelta(days=1)
GRACE = timedelta(days=14)
_TABLES = ("file_versions", "files", "storage_days", "storage_parts", "storage_prices", "storage_mark")


@dataclass(kw_only=True)
class Stored:
    """One version: its bytes, and the span in which it was stored."""

    byte_size: int
    since: datetime


@dataclass(frozen=True, kw_only=True)
class Part:
    """The dimensions of a bill."""

    owner_id: UUID
    purpose: str = "AgentArtifact"
    distribution_id: UUID | None = None


@dataclass(kw_only=True)
class Kept:
    """One file, as the month records it."""

    id: UUID
    payer_id: UUID
    part: Part
    deadline: datetime | None
    versions: list[Stored] = field(default_factory=list)
    deleted_at: datetime | None = None
    is_swept: bool = False

    @property
    def ends_at(self) -> datetime | None:
        return self.deleted_at or self.deadline

    def is_alive(self, at: datetime) -> bool:
        return self.ends_at is None or self.ends_at > at


def midnight_before(days: int) -> datetime:
    """Return the midnight so many days before the last one, UTC."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - days * DAY


class Month:
    """Files of some payers, and the clock of their month."""

    def __init__(self, database: Database, payers: list[UUID], *, starts_at: datetime) -> None:
        self.database = database
        self.payers = payers
        self.files: list[Kept] = []
        self.prices: dict[date, StoragePrice] = {}
        self.price_changes: list[tuple[datetime, StoragePrice]] = []
        self.starts_at = starts_at

    def mark(self) -> None:
        """Set the mark to the month's beginning, when nothing was stored."""
        with self.database.transaction() as session:
            values = {"at": self.starts_at}
            session.execute(text("INSERT INTO storage_mark (id, measured_to) VALUES (1, :at)"), values)

    def upload(
        self,
        at: datetime,
        byte_size: int,
        *,
        payer_id: UUID | None = None,
        deadline: datetime | None = None,
        part: Part | None = None,
    ) -> Kept:
        kept = Kept(
            id=new_id(),
            payer_id=payer_id or random.choice(self.payers),
            deadline=deadline,
            part=part or Part(owner_id=uuid4()),
        )
        self._run(
            "INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state,"
            " current_version_id, revision, retention_expires_at, created_at, distribution_id) VALUES (:id, :owner,"
            " :payer, :purpose, 'DaemonIdentity', :owner, 'Available', :id, 1, :deadline, :at, :distribution)",
            id=kept.id,
            owner=kept.part.owner_id,
            purpose=kept.part.purpose,
            distribution=kept.part.distribution_id,
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
        self._run("UPDATE files SET revision = :count WHERE id = :id", count=len(kept.versions), id=kept.id)

    def renew(self, kept: Kept, deadline: datetime | None) -> None:
        kept.deadline = deadline
        self._run("UPDATE files SET retention_expires_at = :at WHERE id = :id", at=deadline, id=kept.id)

    def delete(self, kept: Kept, at: datetime) -> None:
        kept.deleted_at = at
        self._run("UPDATE files SET state = 'Deleted', ended_at = :at WHERE id = :id", at=at, id=kept.id)

    def sweep(self, at: datetime) -> None:
        """End the files that are due, as the sweep does: late, but at the deadline."""
        self._run(
            "UPDATE files SET state = 'Expired', ended_at = retention_expires_at"
            " WHERE state = 'Available' AND retention_expires_at <= :at",
            at=at,
        )

    def accrue(
        self,
        at: datetime,
        *,
        price: int = 0,
        grace: timedelta = GRACE,
        month: StorageMonth = StorageMonth.THIRTY_DAYS,
    ) -> int:
        """Run the accrual at this moment of the month, with this price; days have the price of their end."""
        found = StoragePrice(amount=price, month=month)
        self.price_changes.append((at, found))
        for day in days_between(self.starts_at, at):
            self.prices.setdefault(day, self._price_at(midnight(day) + DAY))
        return accrue_storage(self.database, price=found, grace=grace, slack=datetime.now(UTC) - at)

    def _price_at(self, moment: datetime) -> StoragePrice:
        known = [price for at, price in self.price_changes if at <= moment]
        return known[-1] if known else self.price_changes[0][1]

    def expected_time(self, payer_id: UUID, day: date, part: Part | None = None) -> int:
        """Return the byte-microseconds of a day, or of a part of it, from the recorded spans."""
        starts_at = midnight(day)
        total = 0
        for kept in self.files:
            if kept.payer_id == payer_id and part in (None, kept.part):
                until = min(kept.ends_at or starts_at + DAY, starts_at + DAY)
                for version in kept.versions:
                    since = max(version.since, starts_at)
                    total += version.byte_size * max(0, (until - since) // MICROSECOND)
        return total

    def expected_costs(self, payer_id: UUID, days: Iterable[date]) -> dict[date, int]:
        """Return the cost of each day: the whole µcr by which its end exceeds its beginning, counted from the first."""
        exact, costs = Fraction(0), {}
        for day in days:
            before = exact // 1
            price = self.prices[day]
            length = 30 if price.month is StorageMonth.THIRTY_DAYS else monthrange(day.year, day.month)[1]
            exact += Fraction(self.expected_time(payer_id, day) * price.amount, GIB_AND_DAY * length)
            costs[day] = exact // 1 - before
        return costs

    def charged_costs(self) -> dict[UUID, dict[date, int]]:
        """Return the cost of each day in the ledger."""
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


def midnight(day: date) -> datetime:
    """The moment in which a UTC day begins."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def days_between(first: datetime, last: datetime) -> list[date]:
    """The UTC days that begin at or after the one moment and are over at the other."""
    days, day = [], datetime(first.year, first.month, first.day, tzinfo=UTC)
    while day + DAY <= last:
        days.append(day.date())
        day += DAY
    return days


def empty_month(database: Database, payers: list[UUID], starts_at: datetime) -> Month:
    """Create a month without stored or measured files, and nothing before it."""
    with database.transaction() as session:
        for table in _TABLES:
            session.execute(text(f"DELETE FROM {table}"))
    return Month(database, payers, starts_at=starts_at)
