"""List the files of a caller's owner scope, newest first. The cost depends on the size of the page alone.

Files are indexed by owner or organization, purpose, state and id. A list is the union of queries called branches: one
branch for each purpose and state, which reads its rows in index order. Names and media types have a separate index
(`searching.py`). A new filter that no index supports would make the list scan all files of the scope.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    CompoundSelect,
    Select,
    Uuid,
    and_,
    any_,
    cast,
    false,
    func,
    or_,
    select,
    true,
    union_all,
)

from shared.db.database import Session
from shared.files.access import OVER_OWNER, SELECT_FILE, is_unexpired, read_file
from shared.files.filters import FILTERS, FileFilter
from shared.files.resources import Availability, Page, Purpose
from shared.files.searching import (
    MAX_OWNERS_SCANNED,
    SCANNED_FILES,
    WordQuery,
    search_matching,
    search_newest,
)
from shared.files.tables import blobs, files, versions
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission

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
class _Scope:
    """The files that a caller may list: those that have one of the values `ids` in `column`."""

    column: ColumnElement[UUID]
    ids: Sequence[UUID]
    within: tuple[ColumnElement[bool], ...] = ()

    @property
    def is_theirs(self) -> ColumnElement[bool]:
        """The SQL condition that a file is in the scope."""
        return and_(self.column == any_(cast(list(self.ids), ARRAY(Uuid))), *self.within)

    @property
    def words(self) -> tuple[str, ...]:
        """The words by which the index of words finds the files of the scope."""
        prefix = "o:" if self.column is files.c.organization_id else "w:"
        return tuple(f"{prefix}{each}" for each in self.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """A part of a list, which has no file in common with the list's other branches.

    Either an index returns the rows that meet the conditions in the order of the list, or few rows meet them.
    """

    conditions: tuple[ColumnElement[bool], ...]
    has_few: bool = False


def list_files(
    session: Session,
    caller: Caller,
    wanted: FileFilter,
    *,
    cursor: UUID | None,
    limit: int,
    pending: Availability,
) -> Page:
    """Return a page of the files of the caller's owner scope, newest first. A user without FileRead gets an empty page.

    `pending` is the availability of staged content. Raises PermissionDenied, ValidationFailed.
    """
    scope = _narrowed(_scope(caller), wanted.owner_id)
    branches = [*_branches(wanted, pending)]
    if wanted.name is None and wanted.media_type is None:
        found = _newest(scope, branches, _span(wanted, cursor), limit + 1).subquery()
        # Read one file more than the page holds: if that file exists, there is a next page.
        newest: Any = select(found.c.id).order_by(found.c.id.desc()).limit(limit + 1)
    else:
        newest = _search(session, scope, branches, wanted, cursor=cursor, count=limit + 1)
    rows = session.execute(SELECT_FILE.where(files.c.id.in_(newest)).order_by(files.c.id.desc())).all()
    page = [read_file(row, pending) for row in rows[:limit]]
    return Page(files=page, next_cursor=page[-1].id if len(rows) > limit else None)


def _search(
    session: Session,
    scope: _Scope,
    branches: Sequence[_Branch],
    wanted: FileFilter,
    *,
    cursor: UUID | None,
    count: int,
) -> Sequence[UUID]:
    """Return the newest ids of files that match words.

    If the scope is an organization or has few owners, search among the newest files first, then in the index of words.
    """
    # Remove the "/*": for all types that begin with "image/", the index has the word "image".
    media_type = None if wanted.media_type is None else wanted.media_type.removesuffix("/*")
    word_query = WordQuery(scope_words=scope.words, media_type=media_type, name=wanted.name)
    found: Sequence[UUID] = ()
    if 1 <= len(scope.ids) <= MAX_OWNERS_SCANNED:
        recent = _newest(scope, branches, _span(wanted, cursor), SCANNED_FILES)
        found, cursor = search_newest(session, word_query, recent, count)
        if cursor is None or len(found) == count:
            return found
    is_wanted = or_(*(and_(*branch.conditions) for branch in branches))
    conditions = (scope.is_theirs, *_span(wanted, cursor), is_wanted)
    return [*found, *search_matching(session, word_query, conditions, count - len(found))]


def _scope(caller: Caller) -> _Scope:
    """Return the scope that the caller may list."""
    if caller.owner is not None:
        owner = caller.owner
        permissions = caller.permissions_on(organization_id=owner.organization_id, owner_id=owner.id)
        if Permission.FILE_READ not in permissions:
            raise caller.lacks(Permission.FILE_READ, where=OVER_OWNER)
        return _Scope(column=files.c.owner_id, ids=[owner.id])
    if caller.organization_id is None:
        return _Scope(column=files.c.organization_id, ids=[])
    if Permission.FILE_READ in caller.permissions_on(organization_id=caller.organization_id):
        return _Scope(column=files.c.organization_id, ids=[caller.organization_id])
    held = caller.permissions_by_scope.items()
    ids = [scope for scope, permissions in held if Permission.FILE_READ in permissions]
    return _Scope(column=files.c.owner_id, ids=ids)


def _narrowed(scope: _Scope, owner_id: UUID | None) -> _Scope:
    """Return the part of a scope that belongs to one owner; all of the scope if `owner_id` is None."""
    if owner_id is None:
        return scope
    if scope.column is files.c.owner_id:
        return replace(scope, ids=[each for each in scope.ids if each == owner_id])
    # Keep the scope's own condition: a client may send any owner id, also one of another organization.
    return _Scope(column=files.c.owner_id, ids=[owner_id], within=(scope.is_theirs,))


def _span(wanted: FileFilter, cursor: UUID | None) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that every branch has: that of the cursor, and those of all filters with a condition."""
    values = ((each, getattr(wanted, each.name)) for each in FILTERS)
    narrowing = (
        each.condition(value) for each, value in values if each.condition is not None and value is not None
    )
    return (*(() if cursor is None else (files.c.id < cursor,)), *narrowing)


def _branches(wanted: FileFilter, pending: Availability) -> Iterator[_Branch]:
    """Yield the branches that can contain files that match the filter."""
    for purpose in Purpose if wanted.purpose is None else (wanted.purpose,):
        for branch in _branches_of(wanted.availability, pending):
            yield replace(branch, conditions=(files.c.purpose == purpose.value, *branch.conditions))


def _branches_of(availability: Availability | None, pending: Availability) -> Iterator[_Branch]:
    is_available = files.c.state == "Available"
    match availability:
        case None:
            for state in _STATES:
                yield _Branch(conditions=(files.c.state == state,))
        case Availability.AVAILABLE:
            is_readable = _is_placed if pending is Availability.PENDING else true()
            yield _Branch(conditions=(is_available, is_unexpired, is_readable))
        case Availability.PENDING:
            is_staged = files.c.id.in_(_staged_files) if pending is Availability.PENDING else false()
            yield _Branch(conditions=(is_available, is_unexpired, is_staged), has_few=True)
        case Availability.EXPIRED:
            yield _Branch(conditions=(files.c.state == "Expired",))
            # Include files that are past their deadline and that no sweep has ended yet.
            is_over = files.c.retention_expires_at <= func.now()
            yield _Branch(conditions=(is_available, is_over), has_few=True)
        case Availability.DELETED:
            yield _Branch(conditions=(files.c.state == "Deleted",))


def _newest(
    scope: _Scope, branches: Sequence[_Branch], span: Sequence[ColumnElement[bool]], count: int
) -> CompoundSelect[Any]:
    """Select ids of all branches: the newest `count` for each owner, or all ids of a branch that has few files."""
    return union_all(
        *(
            _few(scope, span, branch) if branch.has_few else _newest_of(scope, span, branch, count)
            for branch in branches
        )
    )


def _newest_of(
    scope: _Scope, span: Sequence[ColumnElement[bool]], branch: _Branch, count: int
) -> Select[Any]:
    """Select the newest ids of each owner from an index that begins with the columns of the branch's conditions."""
    ids = cast(list(scope.ids), ARRAY(Uuid))
    owners = func.unnest(ids).table_valued("id").render_derived("owners")
    own = select(files.c.id).where(scope.column == owners.c.id, *scope.within, *span, *branch.conditions)
    page = own.order_by(files.c.id.desc()).limit(count).lateral()
    return select(page.c.id).select_from(owners.join(page, true()))


def _few(scope: _Scope, span: Sequence[ColumnElement[bool]], branch: _Branch) -> Select[Any]:
    """Select all ids of a branch that never has many files (for example pending files), in no order."""
    return select(files.c.id).where(scope.is_theirs, *span, *branch.conditions)
