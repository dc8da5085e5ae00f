"""List the files of a caller's owner scope, newest first, at a cost that depends on the page alone.

Files are indexed by owner or organization, purpose, state and id. A list is the union of branches, one for each purpose
and state, each read in index order. Names and media types have an index of their own (`searching.py`). A new filter
that no index supports makes a list scan.
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
    """The files that a caller may list: the column of their owner, and its values."""

    column: ColumnElement[UUID]
    ids: Sequence[UUID]
    within: tuple[ColumnElement[bool], ...] = ()

    @property
    def is_theirs(self) -> ColumnElement[bool]:
        """The condition of files in the scope."""
        return and_(self.column == any_(cast(list(self.ids), ARRAY(Uuid))), *self.within)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the scope in the index of words."""
        prefix = "o:" if self.column is files.c.organization_id else "w:"
        return tuple(f"{prefix}{each}" for each in self.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """Conditions that an index serves in order, or that few rows meet; no two branches have a file in common."""

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
    """Return a page of the files of the caller's owner scope, newest first; a user without FileRead gets none.

    `pending` is the availability of staged content. Raises PermissionDenied, ValidationFailed.
    """
    scope = _narrowed(_scope(caller), wanted.owner_id)
    branches = [*_branches(wanted, pending)]
    if wanted.name is None and wanted.media_type is None:
        found = _newest(scope, branches, _span(wanted, cursor), limit + 1).subquery()
        # One file more than the page shows that there is a next page.
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
    """Return the newest ids by words: first among the newest of a few owners or an organization, then by the index."""
    # The index has a word for each family of types, without the "/*".
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
    """Return the part of a scope that one owner has."""
    if owner_id is None:
        return scope
    if scope.column is files.c.owner_id:
        return replace(scope, ids=[each for each in scope.ids if each == owner_id])
    # Any owner id may be asked for: the condition of the organization keeps the files of others out.
    return _Scope(column=files.c.owner_id, ids=[owner_id], within=(scope.is_theirs,))


def _span(wanted: FileFilter, cursor: UUID | None) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of the cursor and of all filters that have one, for each branch of the union."""
    values = ((each, getattr(wanted, each.name)) for each in FILTERS)
    narrowing = (
        each.condition(value) for each, value in values if each.condition is not None and value is not None
    )
    return (*(() if cursor is None else (files.c.id < cursor,)), *narrowing)


def _branches(wanted: FileFilter, pending: Availability) -> Iterator[_Branch]:
    """Yield the branches with files that match."""
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
            # Those that are past their deadline and that no sweep has ended yet.
            is_over = files.c.retention_expires_at <= func.now()
            yield _Branch(conditions=(is_available, is_over), has_few=True)
        case Availability.DELETED:
            yield _Branch(conditions=(files.c.state == "Deleted",))


def _newest(
    scope: _Scope, branches: Sequence[_Branch], span: Sequence[ColumnElement[bool]], count: int
) -> CompoundSelect[Any]:
    """Select the ids of all branches, at most `count` of each owner."""
    return union_all(
        *(
            _few(scope, span, branch) if branch.has_few else _newest_of(scope, span, branch, count)
            for branch in branches
        )
    )


def _newest_of(
    scope: _Scope, span: Sequence[ColumnElement[bool]], branch: _Branch, count: int
) -> Select[Any]:
    """Select the newest of each owner, along an index that begins with the conditions' columns."""
    ids = cast(list(scope.ids), ARRAY(Uuid))
    owners = func.unnest(ids).table_valued("id").render_derived("owners")
    own = select(files.c.id).where(scope.column == owners.c.id, *scope.within, *span, *branch.conditions)
    page = own.order_by(files.c.id.desc()).limit(count).lateral()
    return select(page.c.id).select_from(owners.join(page, true()))


def _few(scope: _Scope, span: Sequence[ColumnElement[bool]], branch: _Branch) -> Select[Any]:
    """Select all ids of a branch without an order: there are never many, as of pending files."""
    return select(files.c.id).where(scope.is_theirs, *span, *branch.conditions)
