"""Record every commit that changes something, and lose the response of one of them after Postgres has committed.

The connections are real, of a class of their own. A response is lost by closing the socket after COMMIT was
acknowledged, so the client receives the driver's own error. A statement in autocommit counts as a commit.

A commit is identified by the place in the code that opened its transaction, and by the number of commits from that
place in the same run. So the next run finds it again, independent of other threads.
"""

import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg2
import psycopg2.extensions
import pytest
from sqlalchemy import Engine, event

from shared.db.database import Database, Session

ROOT = Path(__file__).parents[2]
_HAS_WRITTEN = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """A place in the code that opens a transaction, or runs a statement in autocommit."""

    path: str
    line: int
    function: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.path}:{self.function}"


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a run: its place, and its number among the commits from that place."""

    site: Site
    number: int

    def __str__(self) -> str:
        return f"{self.site} ({self.number})"


class Journal:
    """The commits of one run in order. The response of one of them may be lost."""

    def __init__(self, lost: Commit | None = None) -> None:
        self.commits: list[Commit] = []
        self.is_lost = False
        self._lost = lost
        self._counts: Counter[Site] = Counter()
        self._lock = threading.Lock()

    def note(self, site: Site) -> bool:
        """Record a commit. Return whether its response is to be lost."""
        with self._lock:
            self._counts[site] += 1
            commit = Commit(site, self._counts[site])
            self.commits.append(commit)
            self.is_lost |= commit == self._lost
            return commit == self._lost


_open = threading.local()
_journals: list[Journal] = []
_before: list[Callable[[], None]] = []
visited: set[Site] = set()
"""Every place at which any run of this process has opened a transaction."""
written: set[Site] = set()
"""The places whose transaction has changed something."""


@contextmanager
def watched(lost: Commit | None = None) -> Iterator[Journal]:
    """Record the commits within the block."""
    journal = Journal(lost)
    _journals.append(journal)
    try:
        yield journal
    finally:
        _journals.remove(journal)


@contextmanager
def before_commits(act: Callable[[], None]) -> Iterator[None]:
    """Run a function before each commit within the block that changes something."""
    _before.append(act)
    try:
        yield
    finally:
        _before.remove(act)


@contextmanager
def watching_connections() -> Iterator[None]:
    """Watch the commits of every connection that is opened within the block."""
    patch = pytest.MonkeyPatch()
    for name in ("transaction", "autocommit"):
        patch.setattr(Database, name, _noting_place(getattr(Database, name)))
    event.listen(Engine, "do_connect", _use_watched)
    try:
        yield
    finally:
        event.remove(Engine, "do_connect", _use_watched)
        patch.undo()


def _use_watched(_: Any, __: Any, ___: Any, options: dict[str, Any]) -> None:
    options["connection_factory"] = WatchedConnection


def _noting_place(opened: Callable[[Database], AbstractContextManager[Session]]) -> Any:
    @contextmanager
    def open_at(database: Database, site: Site) -> Iterator[Session]:
        visited.add(site)
        outer = getattr(_open, "site", None)
        _open.site = site
        try:
            with opened(database) as session:
                yield session
        finally:
            _open.site = outer

    def begin(database: Database) -> AbstractContextManager[Session]:
        return open_at(database, _site_of(sys._getframe(1)))

    return begin


def _site_of(frame: FrameType) -> Site:
    return _site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


@cache
def _site(file: str, line: int, function: str) -> Site:
    return Site(str(Path(file).relative_to(ROOT)), line, function.replace("<locals>.", ""))


class WatchedConnection(psycopg2.extensions.connection):
    """A connection that records its commits."""

    def commit(self) -> None:
        """Commit, and close the connection if the response is to be lost."""
        has_written = (_journals or _before) and _is_in_transaction(self) and self._has_written()
        if has_written:
            self._announce()
        super().commit()
        if has_written:
            self._note()

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        """Return a cursor that records its statements in autocommit as commits."""
        factory = options.pop("cursor_factory", None) or psycopg2.extensions.cursor
        return super().cursor(*arguments, cursor_factory=_noting(factory), **options)

    def run(self, statement: str) -> Any:
        """Run a statement of the recorder itself. Return its first value, if it returns rows."""
        with super().cursor() as cursor:
            cursor.execute(statement)
            return (cursor.fetchone() or [None])[0] if cursor.description else None

    def end_statement(self) -> None:
        """Commit the transaction of one statement in autocommit."""
        has_written = self._has_written()
        if has_written:
            self._announce()
        self.run("COMMIT")
        if has_written:
            self._note()

    def _has_written(self) -> bool:
        return bool(self.run(_HAS_WRITTEN))

    def _announce(self) -> None:
        if getattr(_open, "site", None) is not None and not _is_periodic(sys._getframe(1)):
            for act in _before:
                act()

    def _note(self) -> None:
        site = getattr(_open, "site", None)
        if site is None or _is_periodic(sys._getframe(1)):
            return
        written.add(site)
        heard = [journal.note(site) for journal in _journals]
        if True in heard:
            with socket.socket(fileno=os.dup(self.fileno())) as link:
                link.shutdown(socket.SHUT_RDWR)
            self.run("SELECT 1")  # Raises the driver's own error for a lost connection.


@cache
def _noting(factory: type[Any]) -> type[Any]:
    class NotingCursor(factory):  # type: ignore[misc]  # whichever it is
        def execute(self, query: Any, parameters: Any = None) -> Any:
            link = self.connection
            if not (_journals or _before) or not link.autocommit:
                return super().execute(query, parameters)
            link.run("BEGIN")
            try:
                given = super().execute(query, parameters)
            except psycopg2.Error:
                with suppress(psycopg2.Error):
                    link.run("ROLLBACK")
                raise
            link.end_statement()
            return given

    return NotingCursor


def _is_in_transaction(link: Any) -> bool:
    return bool(link.info.transaction_status == psycopg2.extensions.TRANSACTION_STATUS_INTRANS)


def _is_periodic(frame: FrameType | None) -> bool:
    """Return whether this is a periodic thread: the number of its commits depends on the clock."""
    while frame is not None:
        if (
            frame.f_code.co_filename.endswith("shared/runtime/periodic_thread.py")
            and frame.f_code.co_name == "_run"
        ):
            return True
        frame = frame.f_back
    return False
