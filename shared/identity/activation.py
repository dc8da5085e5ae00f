"""Disable and enable rows: idempotent, by the database's clock, telling whether anything changed.

A disabled row keeps the moment at which it first was.
"""

from uuid import UUID

from sqlalchemy import Column, Table, func, update

from shared.database import Session


def turn_off(session: Session, table: Table, switch: Column[object], row_id: UUID) -> bool:
    """Set `disabled_at`, `revoked_at` or `suspended_at` to now unless it is set; tell whether it was not."""
    statement = update(table).where(table.c.id == row_id, switch.is_(None)).values({switch: func.now()})
    return session.execute(statement).rowcount > 0


def turn_on(session: Session, table: Table, switch: Column[object], row_id: UUID) -> bool:
    """Clear a switch; tell whether it was set."""
    statement = update(table).where(table.c.id == row_id, switch.is_not(None)).values({switch: None})
    return session.execute(statement).rowcount > 0
