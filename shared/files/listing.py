"""List the files of a caller's owner scope, newest first, at the cost of a page whatever the owner has.

Files are indexed by owner or organization, purpose, state and id. A list merges strands, one for each purpose and
state that it may show, each read in index order. A filter that narrows no strand needs an index of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, ColumnElement, Select, Uuid, any_, cast, false, func, select, true, union_all

from shared.database import Session
from shared.files.access import OVER_OWNER, SELECT_FILE, is_unexpired, read_file
from shared.files.resources import Availability, Page, Purpose
from shared.files.tables import blobs, files, versions
from shared.identity.callers import Caller
from shared.identity.permissions import Permission

PAGE_LIMIT = 100
_STATES = ("Available", "Expired", "Deleted")
_staged_files = (
    select(versions.c.file_id)
    .join(blobs, blobs.c.version_id == versions.c.id)
    .where(blobs.c.state == "staged", versions.c.id == files.c.current_version_id)
)
_is_placed = (
    select(blobs.c.version_id)
    .where(blobs.c.version_id == files.c.current_version_id, blobs.c.state == "live")
    .exists()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFilter:
    """Which files of the scope are wanted; None is all."""

    purpose: Purpose | None = None
    availability: Availability | None = None


def list_files(
    session: Session,
    caller: Caller,
    wanted: FileFilter,
    *,
    cursor: UUID | None,
    limit: int,
    pending: Availability,
) -> Page:
    """List the files of the caller's owner scope, newest first; a user without FileRead sees none.

    `pending` says what staged content counts as. Raises PermissionDenied.
    """
    strands = _Strands(*_scope(caller), cursor=cursor, count=limit + 1)
    found = union_all(*strands.of(wanted, pending)).subquery()
    newest = select(found.c.id).order_by(found.c.id.desc()).limit(limit + 1)
    rows = session.execute(SELECT_FILE.where(files.c.id.in_(newest)).order_by(files.c.id.desc())).all()
    page = [read_file(row, pending) for row in rows[:limit]]
    return Page(files=page, next_cursor=page[-1].id if len(rows) > limit else None)


def _scope(caller: Caller) -> tuple[ColumnElement[UUID], Sequence[UUID]]:
    """Give the column that says whose a file is, and its values in what the caller may list."""
    if caller.owner is not None:
        owner = caller.owner
        permissions = caller.permissions_on(organization_id=owner.organization_id, owner_id=owner.id)
        if Permission.FILE_READ not in permissions:
            raise caller.lacks(Permission.FILE_READ, where=OVER_OWNER)
        return files.c.owner_id, [owner.id]
    if caller.organization_id is None:
        return files.c.organization_id, []
    if Permission.FILE_READ in caller.permissions_on(organization_id=caller.organization_id):
        return files.c.organization_id, [caller.organization_id]
    held = caller.permissions_by_scope.items()
    return files.c.owner_id, [scope for scope, permissions in held if Permission.FILE_READ in permissions]


class _Strands:
    """Selects of ids from one scope; what one of them gives no other does."""

    def __init__(
        self, column: ColumnElement[UUID], ids: Sequence[UUID], *, cursor: UUID | None, count: int
    ) -> None:
        self._column = column
        self._ids = cast(list(ids), ARRAY(Uuid))
        self._is_older = true() if cursor is None else files.c.id < cursor
        self._count = count

    def of(self, wanted: FileFilter, pending: Availability) -> Iterator[Select[Any]]:
        """Give those that hold what is wanted."""
        for purpose in Purpose if wanted.purpose is None else (wanted.purpose,):
            is_for = files.c.purpose == purpose.value
            match wanted.availability:
                case None:
                    for state in _STATES:
                        yield self._newest(is_for, files.c.state == state)
                case Availability.AVAILABLE:
                    is_readable = _is_placed if pending is Availability.PENDING else true()
                    yield self._newest(is_for, files.c.state == "Available", is_unexpired, is_readable)
                case Availability.PENDING:
                    is_staged = files.c.id.in_(_staged_files) if pending is Availability.PENDING else false()
                    yield self._all(is_for, files.c.state == "Available", is_unexpired, is_staged)
                case Availability.EXPIRED:
                    yield self._newest(is_for, files.c.state == "Expired")
                    # Those that no sweep has met yet.
                    is_over = files.c.retention_expires_at <= func.now()
                    yield self._all(is_for, files.c.state == "Available", is_over)
                case Availability.DELETED:
                    yield self._newest(is_for, files.c.state == "Deleted")

    def _newest(self, *conditions: ColumnElement[bool]) -> Select[Any]:
        """Give the newest of each owner, along an index that begins with the conditions' columns."""
        whose = func.unnest(self._ids).table_valued("id").render_derived("whose")
        own = select(files.c.id).where(self._column == whose.c.id, self._is_older, *conditions)
        page = own.order_by(files.c.id.desc()).limit(self._count).lateral()
        return select(page.c.id).select_from(whose.join(page, true()))

    def _all(self, *conditions: ColumnElement[bool]) -> Select[Any]:
        """Give every pending file: there are never many."""
        return select(files.c.id).where(self._column == any_(self._ids), self._is_older, *conditions)
