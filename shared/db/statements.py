"""Run single statements directly on the driver, without SQLAlchemy. Every model call does this three times.

SQLAlchemy's pool, connection and result cost more CPU than the driver's work. So this module keeps a few
connections in autocommit mode, in addition to SQLAlchemy's pool. SQLAlchemy's engine opens these connections with
its own settings.
"""

import itertools
import re
import select
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

import psycopg2.extensions
from psycopg2.extras import NamedTupleCursor
from sqlalchemy import Engine, Executable
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.exc import TimeoutError as PoolTimeout

_DIALECT = PGDialect_psycopg2()  # type: ignore[no-untyped-call]
_PARAMETER = re.compile(r"%\((\w+)\)s")


class SharedConnection(psycopg2.extensions.connection):
    """A connection to a pooler. Each transaction may use another server connection, so no statement is prepared."""


class Prepared:
    """A statement in the driver's form that each connection prepares once, because planning may cost more than running.

    The driver converts the values: pass JSON as a string; bytes are returned as a memoryview. Postgres must be able
    to infer the type of a parameter at every place where it occurs. Name the columns instead of `*`: a plan
    outlives a migration, and `*` fails if columns change.
    """

    _numbers = itertools.count()

    def __init__(self, statement: str | Executable) -> None:
        """Create from SQL text with parameters `%(name)s`, or from a statement of SQLAlchemy."""
        text = statement if isinstance(statement, str) else str(statement.compile(dialect=_DIALECT))  # type: ignore[attr-defined]
        # Number the names in the order of their first use, without repeats: $1, $2 …
        names = list(dict.fromkeys(_PARAMETER.findall(text)))
        arguments = ", ".join(f"%({name})s" for name in names)
        self.text = text
        self._name = f"statement_{next(self._numbers)}"
        numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
        # Unescape %% here: the driver does not, because PREPARE is sent without parameters.
        self._prepare = f"PREPARE {self._name} AS {numbered}".replace("%%", "%")
        self._execute = f"EXECUTE {self._name} ({arguments})" if names else f"EXECUTE {self._name}"
        # Use weak references: a closed connection no longer has the prepared statement.
        self._connections: WeakSet[Any] = WeakSet()

    def on(self, driver: Any) -> str:
        """Prepare the statement on this connection if necessary. Return the SQL text that executes the statement."""
        if isinstance(driver, SharedConnection):
            return self.text
        if driver not in self._connections:
            with driver.cursor() as cursor:
                cursor.execute(self._prepare)
            self._connections.add(driver)
        return self._execute


class Statements:
    """A set of connections for single statements, which the engine opens; thread-safe."""

    def __init__(self, engine: Engine, *, size: int, wait_seconds: float) -> None:
        """Allow at most `size` statements at the same time. Further callers wait for up to `wait_seconds`."""
        self._engine = engine
        self._wait_seconds = wait_seconds
        self.size = size
        self._room = threading.Semaphore(size)
        # Use no lock, because append() and pop() are atomic.
        self._idle: deque[Any] = deque()

    @property
    def in_use(self) -> int:
        """The number of running statements."""
        return self.size - self._room._value  # noqa: SLF001 (no public counter; for metrics)

    def fetch_all(self, statement: str | Prepared, values: Mapping[str, Any]) -> list[Any]:
        """Run a statement as a transaction of its own and return its rows as named tuples.

        Raises the driver's errors, SQLAlchemy's errors if no connection can be opened, and SQLAlchemy's
        TimeoutError if no connection is free in time.
        """
        if not self._room.acquire(timeout=self._wait_seconds):
            raise PoolTimeout
        try:
            driver = self._take() or self._connect()
            try:
                return fetch_all(driver, statement, values)
            finally:
                # Drop a broken connection; the next caller opens a new one.
                if not driver.closed:
                    self._idle.append(driver)
        finally:
            self._room.release()

    def dispose(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> Any | None:
        """Return the idle connection that was used last, or None if no idle connection is open."""
        while True:
            try:
                driver = self._idle.pop()
            except IndexError:
                return None
            if not is_closed_by_server(driver):
                return driver
            driver.close()

    def _connect(self) -> Any:
        pooled = self._engine.raw_connection()
        driver: Any = pooled.dbapi_connection
        # Detach the connection, because the pool would otherwise count it and reset its autocommit mode.
        pooled.detach()
        driver.autocommit = True
        return driver


def fetch_all(driver: Any, statement: str | Prepared, values: Mapping[str, Any]) -> list[Any]:
    """Run a statement on a connection of the driver and return the rows as named tuples."""
    if isinstance(statement, Prepared):
        statement = statement.on(driver)
    with driver.cursor(cursor_factory=NamedTupleCursor) as cursor:
        cursor.execute(statement, values)
        rows: list[Any] = cursor.fetchall()
        return rows


def is_closed_by_server(driver: Any) -> bool:
    """Return whether Postgres has closed an idle connection. Polls the socket, because a ping costs a round trip."""
    # Use poll(): select() accepts no descriptor above 1023, and many open streams use higher ones.
    socket = select.poll()
    socket.register(driver.fileno(), select.POLLIN)
    return bool(socket.poll(0))
