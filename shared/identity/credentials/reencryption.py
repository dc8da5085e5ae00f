"""Encrypt all stored secrets with the first encryption key, so that the older keys can be removed.

The secrets of every domain are in columns whose names end with `_encrypted`. First restart all processes with the
new first key, so that rows that are written during the reencryption use this key. Reencryption can be repeated, and
several runs can be concurrent.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.fernet import InvalidToken
from sqlalchemy import Column, LargeBinary, Row, Table, or_, select, tuple_, update

from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.encryption import Encryption

BATCH_SIZE = 200
SUFFIX = "_encrypted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReencryptionReport:
    """The number of secrets that were reencrypted, and the columns and row keys that no key can decrypt."""

    renewed: int
    unreadable: tuple[str, ...]


def reencrypt(database: Database, settings: Settings, tables: Iterable[Table]) -> ReencryptionReport:
    """Reencrypt the secrets of these tables. If none is unreadable, all keys but the first can be removed."""
    encryption = Encryption(settings)
    renewed = 0
    unreadable: list[str] = []
    for table in tables:
        columns = secret_columns(table)
        last: Sequence[Any] | None = None
        while columns:
            # Use one transaction for each batch: locks are short, and an interrupted run keeps the batches that it
            # finished.
            with database.transaction() as session:
                rows = _next_rows(session, table, columns, last)
                found = [_renew(session, encryption, table, columns, row) for row in rows]
            renewed += sum(at.renewed for at in found)
            unreadable += [place for at in found for place in at.unreadable]
            if len(rows) < BATCH_SIZE:
                break
            last = _key_of(table, rows[-1])
    return ReencryptionReport(renewed=renewed, unreadable=tuple(unreadable))


def secret_columns(table: Table) -> Sequence[Column[Any]]:
    """Return the columns of a table that contain encrypted secrets."""
    return [
        column
        for column in table.columns
        if isinstance(column.type, LargeBinary) and column.name.endswith(SUFFIX)
    ]


def _next_rows(
    session: Session, table: Table, columns: Sequence[Column[Any]], last: Sequence[Any] | None
) -> Sequence[Row[Any]]:
    key = list(table.primary_key.columns)
    statement = select(*key, *columns).where(or_(*(column.is_not(None) for column in columns)))
    if last is not None:
        statement = statement.where(tuple_(*key) > tuple_(*last))
    return session.execute(statement.order_by(*key).limit(BATCH_SIZE).with_for_update(of=table)).all()


def _renew(
    session: Session, encryption: Encryption, table: Table, columns: Sequence[Column[Any]], row: Row[Any]
) -> ReencryptionReport:
    renewed: dict[str, bytes] = {}
    unreadable: list[str] = []
    for column in columns:
        token = getattr(row, column.name)
        try:
            if token is not None and not encryption.is_current(bytes(token)):
                renewed[column.name] = encryption.renew(bytes(token))
        # Report the secret and continue: one unreadable secret must not prevent the reencryption of the others.
        except InvalidToken:
            unreadable.append(f"{column}: {', '.join(map(str, _key_of(table, row)))}")
    if renewed:
        is_row = (column == getattr(row, column.name) for column in table.primary_key.columns)
        session.execute(update(table).where(*is_row).values(renewed))
    return ReencryptionReport(renewed=len(renewed), unreadable=tuple(unreadable))


def _key_of(table: Table, row: Row[Any]) -> Sequence[Any]:
    return [getattr(row, column.name) for column in table.primary_key.columns]
