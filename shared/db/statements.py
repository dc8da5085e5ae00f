"""Single statements in the driver's form: the short path to Postgres, which every model call takes three times.

SQLAlchemy's pool, connection and result cost more CPU than the driver's work. A few connections, opened by the engine
with its settings, are kept here in autocommit mode, in addition to its pool.
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
    """A connection to a pooler. Each transaction may get another server connection, so nothing is prepared."""


class Prepared:
    """A statement in the driver's form that each connection plans once: planning may cost more than running it.

    Values are the driver's: JSON goes in as a string, bytes come out as a memoryview. The type of a parameter must
    follow from every place where it occurs. Name the columns: a plan outlives a migration, and `*` fails when columns
    change.
    """

    _numbers = itertools.count()

    def __init__(self, statement: str | Executable) -> None:
        """Accept a statement with parameters as `%(name)s`, or one of SQLAlchemy's."""
        text = statement if isinstance(statement, str) else str(statement.compile(dialect=_DIALECT))  # type: ignore[attr-defined]
        # In the order of first use and without repeats: $1, $2 …
        names = list(dict.fromkeys(_PARAMETER.findall(text)))
        arguments = ", ".join(f"%({name})s" for name in names)
        self.text = text
        self._name = f"statement_{next(self._numbers)}"
        numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
        # Sent without parameters, so the driver does not unescape %% itself.
        self._prepare = f"PREPARE {self._name} AS {numbered}".replace("%%", "%")
        self._execute = f"EXECUTE {self._name} ({arguments})" if names else f"EXECUTE {self._name}"
        # Weak: a closed connection takes its prepared statement along.
        self._connections: WeakSet[Any] = WeakSet()

    def on(self, driver: Any) -> str:
        """Prepare the statement on this connection if necessary. Return the text that executes it."""
        if isinstance(driver, SharedConnection):
            return self.text
        if driver not in self._connections:
            with driver.cursor() as cursor:
                cursor.execute(self._prepare)
            self._connections.add(driver)
        return self._execute


class Statements:
    """The engine's connections for single statements; thread-safe."""

    def __init__(self, engine: Engine, *, size: int, wait_seconds: float) -> None:
        """Run at most `size` statements at once; a further caller waits up to `wait_seconds`."""
        self._engine = engine
        self._wait_seconds = wait_seconds
        self.size = size
        self._room = threading.Semaphore(size)
        # append() and pop() are atomic, so no lock is needed.
        self._idle: deque[Any] = deque()

    @property
    def in_use(self) -> int:
        """The number of running statements."""
        return self.size - self._room._value  # noqa: SLF001 (no public counter; for metrics)

    def fetch_all(self, statement: str | Prepared, values: Mapping[str, Any]) -> list[Any]:
        """Run a statement as a transaction of its own and return its rows as named tuples.

        Raises the driver's errors, SQLAlchemy's if no connection can be opened, and its TimeoutError if none is free
        in time.
        """
        if not self._room.acquire(timeout=self._wait_seconds):
            raise PoolTimeout
        try:
            driver = self._take() or self._connect()
            try:
                return fetch_all(driver, statement, values)
            finally:
                # A connection that broke is dropped; the next caller opens a new one.
                if not driver.closed:
                    self._idle.append(driver)
        finally:
            self._room.release()

    def dispose(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> Any | None:
        """Return the connection used last; None if no idle one is still open."""
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
        # Detached, because the pool would otherwise count it and reset its autocommit.
        pooled.detach()
        driver.autocommit = True
        return driver


def fetch_all(driver: Any, statement: str | Prepared, values: Mapping[str, Any]) -> list[Any]:
    """Run a statement on a driver's connection and return its rows as named tuples."""
    if isinstance(statement, Prepared):
        statement = statement.on(driver)
    with driver.cursor(cursor_factory=NamedTupleCursor) as cursor:
        cursor.execute(statement, values)
        rows: list[Any] = cursor.fetchall()
        return rows


def is_closed_by_server(driver: Any) -> bool:
    """Return whether Postgres has closed an idle connection, by its socket: a ping costs a round trip."""
    # poll() and not select(), which accepts no descriptor above 1023; open streams use many.
    socket = select.poll()
    socket.register(driver.fileno(), select.POLLIN)
    return bool(socket.poll(0))
