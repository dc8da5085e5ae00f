"""Convert the attachments of a message to parts: a stored file to its URL, a missing file to its name and the reason.

A `Task` reference keeps a file until the task is deleted. The stored part has a plain URL, and requests to this URL
need a credential. The agent and other readers of the task get a URL with a read grant instead
(`shared/a2a/file_links.py`).
"""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import select, text

from shared.a2a.file_links import content_address
from shared.a2a.types import Part
from shared.db.database import Session
from shared.files.references import ReferenceKind, refer
from shared.media.importing.imports import ImportState
from shared.media.tables import media_imports

LATE = "not_received_in_time"
GONE = "file_deleted"

# The query locks each file. A deletion locks the same row, so it either sees the task's reference or has come before.
_FILES = text(
    """
SELECT files.id, file_versions.id AS version_id, file_versions.file_name, file_versions.media_type
FROM files JOIN file_versions ON file_versions.id = files.current_version_id
WHERE files.id = ANY (CAST(:ids AS uuid[])) AND files.state = 'Available'
ORDER BY files.id FOR UPDATE OF files
"""
)


def attachment_parts(
    session: Session, import_ids: Sequence[UUID], task_id: UUID, *, base_url: str
) -> Iterator[Part]:
    """Yield a part for each import, in order, and add references of the task to the files."""
    found = select(media_imports).where(media_imports.c.id.in_(import_ids))
    imports = {row.id: row for row in session.execute(found)}
    ids = [str(row.file_id) for row in imports.values() if row.file_id is not None]
    files = {row.id: row for row in session.execute(_FILES, {"ids": ids})} if ids else {}
    for import_id in import_ids:
        imported = imports.get(import_id)
        file = files.get(imported.file_id) if imported is not None else None
        if file is None:
            yield Part(text=_missing(imported))
            continue
        refer(session, file.id, ReferenceKind.TASK, str(task_id))
        address = content_address(base_url, file.id, file.version_id)
        yield Part(url=address, filename=file.file_name, media_type=file.media_type)


def _missing(imported: Any) -> str:
    """Return the text for an attachment without a file: its name and the reason."""
    if imported is None:
        return f"[attachment: {GONE}]"
    name = imported.file_name or imported.attachment_id
    # The attachment was stored, but its file was deleted before the message was sent.
    if imported.state == ImportState.STORED.value:
        return f"[{name}: {GONE}]"
    return f"[{name}: {imported.code if imported.state == ImportState.FAILED.value else LATE}]"
