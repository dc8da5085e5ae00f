"""Single statements in the driver's own form: the short way to Postgres, which every model call takes three times.

SQLAlchemy's pool, connection and result cost more processor than the driver's work. A few connections, made by the
engine with its settings, are kept here in autocommit, besides its pool.
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
    """A connection to a pooler: each transaction may have another of Postgres' behind it, so nothing is prepared."""


class Prepared:
    """A statement in the driver's own form that each connection plans once: planning may cost more than the rest.

    What goes in and comes out is the driver's: JSON goes in as a string, and bytes come out as a memoryview. A
    parameter's type must follow from every place where it stands. Name the columns: a plan outlives a migration, and
    fails where the columns of a `*` have changed.
    """

    _numbers = itertools.count()

    def __init__(self, statement: str | Executable) -> None:
        """Take a statement with parameters as `%(name)s`, or one of SQLAlchemy's."""
        text = statement if isinstance(statement, str) else str(statement.compile(dialect=_DIALECT))  # type: ignore[attr-defined]
        names = list(dict.fromkeys(_PARAMETER.findall(text)))
        arguments = ", ".join(f"%({name})s" for name in names)
        self.text = text
        self._name = f"statement_{next(self._numbers)}"
        numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
        self._prepare = f"PREPARE {self._name} AS {numbered}".replace("%%", "%")
        self._execute = f"EXECUTE {self._name} ({arguments})" if names else f"EXECUTE {self._name}"
        self._connections: WeakSet[Any] = WeakSet()

    def on(self, driver: Any) -> str:
        """Prepare it, unless this connection has; give what carries it out."""
        if isinstance(driver, SharedConnection):
            return self.text
        if driver not in self._connections:
            with driver.cursor() as cursor:
                cursor.execute(self._prepare)
            self._connections.add(driver)
        return self._execute


class Statements:
    """The connections of one engine for single statements; safe to share between threads."""

    def __init__(self, engine: Engine, *, size: int, wait_seconds: float) -> None:
        """At most `size` statements run at once; others wait for so long."""
        self._engine = engine
        self._wait_seconds = wait_seconds
        self.size = size
        self._room = threading.Semaphore(size)
        self._idle: deque[Any] = deque()

    @property
    def in_use(self) -> int:
        """How many statements run."""
        return self.size - self._room._value  # noqa: SLF001 (a look at the count, for metrics)

    def fetch_all(self, statement: str | Prepared, values: Mapping[str, Any]) -> list[Any]:
        """Run a statement, a transaction by itself; give its rows, named tuples.

        Raises the driver's errors, SQLAlchemy's for connections that cannot be made, and its TimeoutError.
        """
        if not self._room.acquire(timeout=self._wait_seconds):
            raise PoolTimeout
        try:
            driver = self._take() or self._connect()
            try:
                return fetch_all(driver, statement, values)
            finally:
                if not driver.closed:
                    self._idle.append(driver)
        finally:
            self._room.release()

    def dispose(self) -> None:
        """Close the connections that are idle."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> Any | None:
        """Take the connection used last, unless Postgres has closed it meanwhile."""
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
        pooled.detach()
        driver.autocommit = True
        return driver


def fetch_all(driver: Any, statement: str | Prepared, values: Mapping[str, Any]) -> list[Any]:
    """Run a statement on a connection of the driver's; give its rows, named tuples."""
    if isinstance(statement, Prepared):
        statement = statement.on(driver)
    with driver.cursor(cursor_factory=NamedTupleCursor) as cursor:
        cursor.execute(statement, values)
        rows: list[Any] = cursor.fetchall()
        return rows


def is_closed_by_server(driver: Any) -> bool:
    """Tell whether Postgres has closed an idle connection, by its socket: a ping would be a round trip."""
    # `poll`, because `select` knows no descriptor above 1023, and streams take many.
    socket = select.poll()
    socket.register(driver.fileno(), select.POLLIN)
    return bool(socket.poll(0))
