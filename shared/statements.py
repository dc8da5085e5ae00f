"""Single statements in the driver's own form: the short way to Postgres, which every model call takes three times.

SQLAlchemy's pool, connection and result cost more processor than the driver's work. A few connections, made by the
engine with its settings, are kept here in autocommit, besides its pool.
"""

import select
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from psycopg2.extras import NamedTupleCursor
from sqlalchemy import Engine
from sqlalchemy.exc import TimeoutError as PoolTimeout


class Statements:
    """The connections of one engine for single statements; safe to share between threads."""

    def __init__(self, engine: Engine, *, size: int, wait_seconds: float) -> None:
        """At most `size` statements run at once; others wait for so long."""
        self._engine = engine
        self._wait_seconds = wait_seconds
        self._room = threading.Semaphore(size)
        self._idle: deque[Any] = deque()

    def fetch_all(self, statement: str, values: Mapping[str, Any]) -> list[Any]:
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


def fetch_all(driver: Any, statement: str, values: Mapping[str, Any]) -> list[Any]:
    """Run a statement on a connection of the driver's; give its rows, named tuples."""
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
