"""Insert, find and list the rows of imports.

Because of the unique key (distribution, network, message id, attachment id), repeated pushes of an attachment create
only one import. Secrets of a source are stored encrypted and are not part of `Import`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import select

from shared.db.database import Session
from shared.db.statements import Prepared
from shared.errors import ServiceUnavailable
from shared.ids import new_id
from shared.media.attachments import Attachment
from shared.media.errors import ImportConflict, ImportNotFound
from shared.media.importing.descriptions import hash_description
from shared.media.tables import media_imports
from shared.messaging.jobs import Job
from shared.messaging.queues import MEDIA
from shared.pagination import Page, Position, descending, paginate

STANDARD = "standard"
"""The network of generic pushes. The location of their attachments is `{"url": …}`."""

_table = media_imports.c


class ImportState(StrEnum):
    """The state of an import. `Held` means paused."""

    QUEUED = "Queued"
    FETCHING = "Fetching"
    HELD = "Held"
    STORED = "Stored"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchMedia(Job):
    """Imports wait to be fetched. A worker that claims an import while others wait wakes another thread."""

    kind = "media.fetch"
    queue = MEDIA


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """A snapshot of an import. `code` is the error of the last attempt; `due_at` is the time of the next attempt.

    `forgiven_attempts` is the number of attempts before the last manual retry, which no longer count.
    """

    id: UUID
    distribution_id: UUID
    organization_id: UUID
    network: str
    message_id: str
    attachment_id: str
    conversation_id: str | None
    location: Mapping[str, str] = field(repr=False)
    file_name: str | None
    media_type: str | None
    byte_size: int | None
    content_sha256: bytes | None = field(repr=False)
    state: ImportState
    code: str | None
    attempts: int
    forgiven_attempts: int
    due_at: datetime
    file_id: UUID | None
    version_id: UUID | None
    ended_at: datetime | None
    created_at: datetime
    is_new: bool = False
    """Whether the push that returned this import has created it."""

    @property
    def spent_attempts(self) -> int:
        """The number of attempts since the import was pushed or manually retried."""
        return self.attempts - self.forgiven_attempts

    @property
    def attachment(self) -> Attachment:
        """The attachment as the push described it."""
        return Attachment(
            message_id=self.message_id,
            attachment_id=self.attachment_id,
            location=self.location,
            file_name=self.file_name,
            media_type=self.media_type,
            size_bytes=self.byte_size,
            sha256=self.content_sha256,
            conversation_id=self.conversation_id,
        )


def insert_import(session: Session, values: Mapping[str, Any], attachment: Attachment) -> Import | None:
    """Insert the row of an import for a normalized attachment. Return None if the import exists already.

    If `values` has `kept_days`, the import has already ended and its record is kept for so many days.
    """
    described = {
        "id": new_id(),
        "message_id": attachment.message_id,
        "attachment_id": attachment.attachment_id,
        "conversation_id": attachment.conversation_id,
        "location": json.dumps(dict(attachment.location)),
        "file_name": attachment.file_name,
        "media_type": attachment.media_type,
        "byte_size": attachment.size_bytes,
        "content_sha256": attachment.sha256,
        # Store a hash of the description: a repeated push must have the same description.
        "request_hash": hash_description(attachment),
    }
    row = session.fetch_one(_INSERT, {**_UNSET, **described, **values})
    return None if row is None else read_import(row, is_new=True)


def get_repeated(session: Session, *, distribution_id: UUID, network: str, attachment: Attachment) -> Import:
    """Return the import that an earlier push of this attachment created.

    Raises ImportConflict if the earlier push described the attachment differently, and ServiceUnavailable if the record
    of the earlier push was just deleted.
    """
    row = session.execute(
        select(*_columns, _table.request_hash).where(
            _table.distribution_id == distribution_id,
            _table.network == network,
            _table.message_id == attachment.message_id,
            _table.attachment_id == attachment.attachment_id,
        )
    ).one_or_none()
    if row is None:
        # The record was deleted after the insert had conflicted with it. A retry will insert a new record.
        raise ServiceUnavailable("The record of an earlier push has just been removed; try again.")
    # Compare only generic pushes, because the URLs of native networks change with each delivery of a webhook.
    if network == STANDARD and bytes(row.request_hash) != hash_description(attachment):
        raise ImportConflict(importId=row.id)
    return read_import(row)


def get_import(session: Session, *, distribution_id: UUID, import_id: UUID) -> Import:
    """Return one import of a distribution. Raises ImportNotFound."""
    statement = select(*_columns).where(_table.id == import_id, _table.distribution_id == distribution_id)
    row = session.execute(statement).one_or_none()
    if row is None:
        raise ImportNotFound
    return read_import(row)


def find_imports(session: Session, import_ids: Sequence[UUID]) -> tuple[Import, ...]:
    """Return the imports with these ids, in the order of the ids. Deleted imports are left out."""
    if not import_ids:
        return ()
    rows = {row.id: row for row in session.execute(select(*_columns).where(_table.id.in_(import_ids)))}
    # Restore the order of the caller's ids, because `IN` returns rows in any order.
    return tuple(read_import(rows[import_id]) for import_id in import_ids if import_id in rows)


def get_pushed_import(
    session: Session, *, distribution_id: UUID, network: str, message_id: str, attachment_id: str
) -> Import:
    """Return the import of an attachment that was pushed earlier. Raises ImportNotFound."""
    statement = select(*_columns).where(
        _table.distribution_id == distribution_id,
        _table.network == network,
        _table.message_id == message_id,
        _table.attachment_id == attachment_id,
    )
    row = session.execute(statement).one_or_none()
    if row is None:
        raise ImportNotFound(
            "An attachment has no url and was not pushed before. Push it first, or give its url."
        )
    return read_import(row)


def list_imports(
    session: Session, *, distribution_id: UUID, state: ImportState | None = None, **page: Unpack[Position]
) -> Page[Import]:
    """Return a page of a distribution's imports, newest first."""
    statement = select(*_columns).where(_table.distribution_id == distribution_id)
    if state is not None:
        statement = statement.where(_table.state == state.value)
    return paginate(session, statement, descending(_table.id), read_import, **page)


def read_import(row: Any, *, is_new: bool = False) -> Import:
    """Return the import that a row describes."""
    values = {column.key: getattr(row, column.key) for column in _columns}
    digest = values["content_sha256"]
    return Import(
        **{**values, "content_sha256": digest and bytes(digest), "state": ImportState(row.state)},
        is_new=is_new,
    )


_columns = (
    _table.id,
    _table.distribution_id,
    _table.organization_id,
    _table.network,
    _table.message_id,
    _table.attachment_id,
    _table.conversation_id,
    _table.location,
    _table.file_name,
    _table.media_type,
    _table.byte_size,
    _table.content_sha256,
    _table.state,
    _table.code,
    _table.attempts,
    _table.forgiven_attempts,
    _table.due_at,
    _table.file_id,
    _table.version_id,
    _table.ended_at,
    _table.created_at,
)
# Default values: all inserts use one prepared statement, which needs a value for every parameter.
_UNSET = dict.fromkeys(("headers_encrypted", "code", "file_id", "version_id", "kept_days"))
IMPORT_COLUMNS = ", ".join(column.name for column in _columns)
_INSERT = Prepared(f"""
INSERT INTO media_imports (id, distribution_id, organization_id, network, message_id, attachment_id, conversation_id,
    location, headers_encrypted, file_name, media_type, byte_size, content_sha256, request_hash, state,
    code, is_ready, due_at, file_id, version_id, ended_at, forget_at)
VALUES (%(id)s, %(distribution_id)s, %(organization_id)s, %(network)s, %(message_id)s, %(attachment_id)s,
    %(conversation_id)s, %(location)s, %(headers_encrypted)s, %(file_name)s, %(media_type)s, %(byte_size)s,
    %(content_sha256)s, %(request_hash)s, %(state)s,
    %(code)s, %(state)s <> 'Held',
    now() + CASE WHEN %(state)s = 'Held' THEN interval '1 min' ELSE interval '0' END, %(file_id)s, %(version_id)s,
    CASE WHEN CAST(%(kept_days)s AS int) IS NOT NULL THEN now() END, now() + make_interval(days => %(kept_days)s))
ON CONFLICT ON CONSTRAINT uq_media_imports_attachment DO NOTHING RETURNING {IMPORT_COLUMNS}
""")  # noqa: S608 (columns from the code)
