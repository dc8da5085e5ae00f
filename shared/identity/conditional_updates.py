"""Update rows only if a value differs, so that a repeated request changes nothing and writes no audit event.

Each function returns whether the row changed; the caller records an audit event only if it did. Times come from the
database's clock.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Column, Table, func, select, update

from shared.db.database import Session


def mark_disabled(session: Session, table: Table, switch: Column[object], row_id: UUID) -> bool:
    """Set `disabled_at`, `revoked_at` or `suspended_at` to now if it is null. Return whether the row changed."""
    # Keep the first time: a second call must not make the row look disabled later than it was.
    statement = update(table).where(table.c.id == row_id, switch.is_(None)).values({switch: func.now()})
    return session.execute(statement).rowcount > 0


def mark_enabled(session: Session, table: Table, switch: Column[object], row_id: UUID) -> bool:
    """Clear the column `disabled_at`, `revoked_at` or `suspended_at`. Return whether the row changed."""
    statement = update(table).where(table.c.id == row_id, switch.is_not(None)).values({switch: None})
    return session.execute(statement).rowcount > 0


def set_values(
    session: Session, table: Table, row_id: UUID, values: Mapping[str, Any], **with_them: Any
) -> bool:
    """Update a row if any value differs. Return whether the row changed; False also if the row does not exist.

    `with_them` holds values that are written only together with a change, such as `updated_at`.
    """
    # Compare in Python, after the column types have read the row: Postgres has no equality for the type `json`.
    wanted = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    columns = [table.c[name] for name in wanted]
    # Lock the row, so that two concurrent equal changes do not both report a change. NO KEY UPDATE lets inserts of
    # rows that reference this one continue.
    held = select(*columns).where(table.c.id == row_id).with_for_update(key_share=True)
    present = session.execute(held).one_or_none()
    if present is None or present._asdict() == wanted:
        return False
    session.execute(update(table).where(table.c.id == row_id).values({**wanted, **with_them}))
    return True
