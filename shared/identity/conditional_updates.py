"""Disable, enable and change rows: idempotent, by the database's clock, telling whether anything changed.

A disabled row keeps the moment at which it first was. What changed nothing is not recorded in the audit.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Column, Table, func, select, update

from shared.db.database import Session


def mark_disabled(session: Session, table: Table, switch: Column[object], row_id: UUID) -> bool:
    """Set `disabled_at`, `revoked_at` or `suspended_at` to now unless it is set; tell whether it was not."""
    statement = update(table).where(table.c.id == row_id, switch.is_(None)).values({switch: func.now()})
    return session.execute(statement).rowcount > 0


def mark_enabled(session: Session, table: Table, switch: Column[object], row_id: UUID) -> bool:
    """Clear a switch; tell whether it was set."""
    statement = update(table).where(table.c.id == row_id, switch.is_not(None)).values({switch: None})
    return session.execute(statement).rowcount > 0


def set_values(
    session: Session, table: Table, row_id: UUID, values: Mapping[str, Any], **with_them: Any
) -> bool:
    """Give a row these values, unless it has them all; tell whether one was another.

    `with_them` is set where one was. False also where there is no such row.
    """
    # Compared here, as the types of the columns read them: Postgres cannot compare JSON that is kept as it was sent.
    wanted = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    columns = [table.c[name] for name in wanted]
    held = select(*columns).where(table.c.id == row_id).with_for_update(key_share=True)
    present = session.execute(held).one_or_none()
    if present is None or present._asdict() == wanted:
        return False
    session.execute(update(table).where(table.c.id == row_id).values({**wanted, **with_them}))
    return True
