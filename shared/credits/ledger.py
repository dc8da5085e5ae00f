"""The ledger: one immutable entry for each amount credited to or debited from an organization.

An entry is a transfer between the organization's account and the account that its kind names; one row states both
sides. `version` counts an organization's entries without a gap, and `balance_after` is the running sum, so that a lost
or altered entry is detected. Only the SQL function `credits_post` writes entries, together with the balance.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, select, text

from shared.credits.amounts import MAX_AMOUNT, format_credits
from shared.credits.authorization import authorize_administrative_reading
from shared.credits.errors import BalanceOutOfRange, ReferenceConflict
from shared.credits.tables import ledger_entries
from shared.db.database import Session
from shared.errors import invalid_field
from shared.identity.access.authorization import Actor, authorize_administration
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.field_validation import MAX_NAME_CHARACTERS
from shared.identity.lookups import require_organization
from shared.pagination import DEFAULT_LIMIT, Page

TOP_UP = "top_up"
ADJUSTMENT = "adjustment"
KINDS = (TOP_UP, ADJUSTMENT, "charge", "correction", "storage")
"""The kinds of entries, in the order in which statements list them."""
FIRST_RUN = "first-run"
"""The reference of the credits of a new installation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry, in µcr; a positive amount credits the organization."""

    organization_id: UUID
    version: int
    kind: str
    reference: str
    amount: int
    balance_after: int
    occurred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """An entry, and whether an earlier request with the same reference wrote the entry."""

    entry: Entry
    is_replayed: bool


def top_up(session: Session, *, organization_id: UUID, amount: int, reference: str, actor: Actor) -> Entered:
    """Add credits, for an operator. A request with a reference that was used before returns the first entry.

    Raises PermissionDenied, ResourceNotFound, ValidationFailed, BalanceOutOfRange, and ReferenceConflict if the
    reference was used for another amount.
    """
    # `credit.grant` is in no role: owners could give credits to themselves otherwise.
    authorize_administration(actor, Permission.CREDIT_GRANT, organization_id)
    if not 0 < amount <= MAX_AMOUNT:
        raise invalid_field("amount", f"must be more than 0 and at most {format_credits(MAX_AMOUNT)} credits")
    return _enter(session, organization_id, TOP_UP, reference, amount, actor)


def adjust(session: Session, *, organization_id: UUID, amount: int, reference: str, actor: Actor) -> Entered:
    """Correct a mistake by an entry of either sign, for an operator. Raises the same errors as `top_up`."""
    authorize_administration(actor, Permission.CREDIT_GRANT, organization_id)
    if amount == 0 or abs(amount) > MAX_AMOUNT:
        raise invalid_field(
            "amount", f"must not be 0, and at most {format_credits(MAX_AMOUNT)} credits either way"
        )
    return _enter(session, organization_id, ADJUSTMENT, reference, amount, actor)


def list_entries(
    session: Session,
    *,
    actor: Actor,
    organization_id: UUID,
    cursor: int | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[Entry]:
    """Return a page of an organization's entries, newest first. `cursor` is the last version of the previous page."""
    authorize_administrative_reading(session, actor, Permission.CREDIT_READ, organization_id)
    statement = select(ledger_entries).where(ledger_entries.c.organization_id == organization_id)
    if cursor is not None:
        statement = statement.where(ledger_entries.c.version < cursor)
    rows = session.execute(statement.order_by(ledger_entries.c.version.desc()).limit(limit + 1)).all()
    items = tuple(_entry(row) for row in rows[:limit])
    return Page(items=items, next_cursor=str(items[-1].version) if len(rows) > limit else None)


_ENTER = text(
    """
SELECT (f.entry).*, f.is_replayed, f.is_beyond
FROM credits_enter(CAST(:organization_id AS uuid), :kind, :reference, :amount) f
"""
)


def _enter(
    session: Session, organization_id: UUID, kind: str, reference: str, amount: int, actor: Actor
) -> Entered:
    require_organization(session, organization_id)
    if not 1 <= len(reference) <= MAX_NAME_CHARACTERS or not reference.isprintable():
        raise invalid_field("reference", f"must have 1 to {MAX_NAME_CHARACTERS} printable characters")
    values = {
        "organization_id": str(organization_id),
        "kind": kind,
        "reference": reference,
        "amount": amount,
    }
    row = session.execute(_ENTER, values).one()
    # The SQL function writes no entry if the balance would be out of range, so raise the error here.
    if row.is_beyond:
        raise BalanceOutOfRange
    entered = Entered(entry=_entry(row), is_replayed=row.is_replayed)
    # The reference is unique per kind, so a different amount means that the sender reused the reference.
    if entered.entry.amount != amount:
        raise ReferenceConflict
    if not entered.is_replayed:
        record(
            session,
            actor,
            f"credits.{kind}",
            organization_id,
            resource_kind="organization",
            organization_id=organization_id,
            amount=format_credits(amount),
            reference=reference,
        )
    return entered


def _entry(row: Row[Any]) -> Entry:
    values = row._asdict()
    return Entry(**{name: values[name] for name in Entry.__dataclass_fields__})
