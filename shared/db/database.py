"""Access Postgres in short, explicit transactions. No other module commits.

A function whose first parameter is `session` runs in its caller's transaction. A function whose first parameter is
`database` opens its own short transactions, and holds no connection while content is transferred. Jobs are
published after the commit, when the connection is back in the pool. So a broker that is down cannot fail or delay a
committed request.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self
from weakref import WeakSet

import psycopg2
from prometheus_client import Counter, Gauge
from sqlalchemy import Connection, CursorResult, Engine, Executable, create_engine, event
from sqlalchemy.exc import DBAPIError, DisconnectionError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from shared import failpoints
from shared.config.settings import Settings
from shared.db.statements import Prepared, SharedConnection, Statements, fetch_all, is_closed_by_server
from shared.errors import ServiceUnavailable

STATEMENT_TIMEOUT_MS = 30_000
LOCK_TIMEOUT_MS = 10_000
POOL_WAIT_SECONDS = 5
SILENT_LINK = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""Options of libpq that close the connection to a host that acknowledges no packet: after 11 s instead of two hours."""

_OPEN: WeakSet["Database"] = WeakSet()
"""The databases of this process, for its metrics; weak, so that a test's database can be collected."""
_POOL_IN_USE = Gauge("quartermaster_database_pool_in_use", "Connections to Postgres that are in use.")
_POOL_SIZE = Gauge("quartermaster_database_pool_size", "Connections to Postgres that may be in use at once.")
_POOL_TIMEOUTS = Counter(
    "quartermaster_database_pool_timeouts_total", "Callers that got no connection to Postgres in time."
)
_POOL_IN_USE.set_function(lambda: sum(database.pool_use()[0] for database in list(_OPEN)))
_POOL_SIZE.set_function(lambda: sum(database.pool_use()[1] for database in list(_OPEN)))

LIMITS = {
    "statement_timeout": f"{STATEMENT_TIMEOUT_MS}ms",
    "lock_timeout": f"{LOCK_TIMEOUT_MS}ms",
    "idle_in_transaction_session_timeout": f"{STATEMENT_TIMEOUT_MS}ms",
    "timezone": "UTC",
    "default_transaction_isolation": "read committed",
}
"""The parameters that every connection must have, by Postgres' names."""

Publish = Callable[[Sequence[Any]], None]
# Postgres' error code lock_not_available.
_LOCK_NOT_AVAILABLE = "55P03"


class LockTimeout(ServiceUnavailable):
    """Another request holds a lock that this one needs. Try again."""


class Session:
    """A transaction: runs statements, and collects the jobs to publish after the commit."""

    __slots__ = ("connection", "jobs")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.jobs: list[Any] = []

    def execute(
        self, statement: Executable, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    ) -> CursorResult[Any]:
        """Run one statement and return its result."""
        return self.connection.execute(statement, parameters)

    def fetch_one(self, statement: str | Prepared, values: Mapping[str, Any]) -> Any | None:
        """Run one statement in the driver's form and return its first row as a named tuple, or None."""
        rows = self.fetch_all(statement, values)
        return rows[0] if rows else None

    def fetch_all(self, statement: str | Prepared, values: Mapping[str, Any]) -> list[Any]:
        """Run one statement in the driver's form and return its rows as named tuples."""
        return fetch_all(self.connection.connection.dbapi_connection, statement, values)

    def enqueue(self, job: Any) -> None:
        """Publish a job after the commit. A rollback publishes nothing."""
        self.jobs.append(job)


class StatementSession(Session):
    """A session in which every statement is its own transaction.

    The session takes a connection from SQLAlchemy's pool only for statements that need SQLAlchemy.
    """

    __slots__ = ("_connected", "_engine", "_statements")

    def __init__(self, engine: Engine, statements: Statements) -> None:
        self._engine = engine
        self._statements = statements
        self._connected: Connection | None = None
        self.jobs = []

    @property
    def connection(self) -> Connection:  # type: ignore[override]
        """SQLAlchemy's connection, in the driver's autocommit mode."""
        if self._connected is None:
            self._connected = self._engine.connect()
            # Set the driver's autocommit: SQLAlchemy's isolation level AUTOCOMMIT would send a reset to the server
            # after every use.
            _set_autocommit(self._connected, is_on=True)
        return self._connected

    def fetch_all(self, statement: str | Prepared, values: Mapping[str, Any]) -> list[Any]:
        """Run one statement in the driver's form and return its rows as named tuples."""
        return self._statements.fetch_all(statement, values)

    def close(self) -> None:
        """Return the connection to the pool. The pool discards a broken connection."""
        if self._connected is None:
            return
        with contextlib.closing(self._connected):
            if not self._connected.invalidated:
                _set_autocommit(self._connected, is_on=False)


class Database:
    """A pool of connections to one Postgres database."""

    def __init__(
        self, url: str, *, pool_size: int = 16, publish: Publish | None = None, has_pooler: bool = False
    ) -> None:
        """Create the pool without opening a connection. `publish` receives the jobs of committed transactions.

        `has_pooler` means that the URL is that of a connection pooler in transaction mode (see `role_limits`).
        """
        self._engine = _create_engine(url, pool_size, has_pooler=has_pooler)
        # Half the pool's size is enough for single statements: each one needs a connection for only one round trip.
        size = max(1, pool_size // 2)
        self._statements = Statements(self._engine, size=size, wait_seconds=POOL_WAIT_SECONDS)
        self._publish = publish
        self._pool_size = pool_size
        _OPEN.add(self)

    @classmethod
    def of(cls, settings: Settings, *, pool_size: int, publish: Publish | None = None) -> Self:
        """Return the database at DATABASE_URL."""
        return cls(
            settings.database_url,
            pool_size=pool_size,
            publish=publish,
            has_pooler=settings.database_pooler,
        )

    @property
    def engine(self) -> Engine:
        """The SQLAlchemy engine, for migrations."""
        return self._engine

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Session]:
        """Run a block in one transaction, which is committed at the end of the block or rolled back on any exception.

        The transaction's jobs are published after the commit.

        Raises ServiceUnavailable if Postgres cannot be reached, a lock times out or the connection breaks. If the
        commit was interrupted, its outcome is unknown, so every caller must be safe to repeat.
        """
        with _translated_errors(), self._engine.begin() as connection:
            session = Session(connection)
            yield session
        self._publish_jobs(session)

    @contextlib.contextmanager
    def autocommit(self) -> Iterator[Session]:
        """Run a block in which each statement is its own transaction. Raises the same errors as `transaction`."""
        session = StatementSession(self._engine, self._statements)
        with _translated_errors(), contextlib.closing(session):
            yield session
        self._publish_jobs(session)

    def check(self) -> None:
        """Raise ServiceUnavailable unless Postgres answers."""
        with self.autocommit() as session:
            session.connection.exec_driver_sql("SELECT 1")

    def pool_use(self) -> tuple[int, int]:
        """Return the number of connections in use and its maximum, including those for single statements."""
        pool: Any = self._engine.pool
        used = int(pool.checkedout()) + self._statements.in_use
        return used, self._pool_size + self._statements.size

    def dispose(self) -> None:
        """Close the pooled connections."""
        self._statements.dispose()
        self._engine.dispose()

    def _publish_jobs(self, session: Session) -> None:
        # Publish only on success: an exception skips this line together with the commit.
        if session.jobs and self._publish is not None:
            failpoints.hit("jobs.before_publish")
            self._publish(session.jobs)


def _set_autocommit(connection: Connection, *, is_on: bool) -> None:
    driver: Any = connection.connection.dbapi_connection
    if not driver.closed:
        # Suppress errors: a broken connection would raise here and hide the error that broke it.
        driver.autocommit = is_on


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except PoolTimeout as error:
        _POOL_TIMEOUTS.inc()
        raise ServiceUnavailable("The database is busy; try again.") from error
    except OperationalError as error:
        # Raise a separate error for a lock timeout, which another caller causes and which is no outage.
        if getattr(error.orig, "pgcode", None) == _LOCK_NOT_AVAILABLE:
            raise LockTimeout from error
        raise ServiceUnavailable("The database does not answer at the moment; try again.") from error
    except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
        # The driver raises its own errors for a statement that does not go through SQLAlchemy, or if the connection
        # broke between two statements.
        if error.pgcode == _LOCK_NOT_AVAILABLE:
            raise LockTimeout from error
        raise ServiceUnavailable("The database does not answer at the moment; try again.") from error
    except DBAPIError as error:
        # SQLAlchemy found the connection broken but raised a less specific error.
        if error.connection_invalidated:
            raise ServiceUnavailable("The database does not answer at the moment; try again.") from error
        raise


def _own_limits() -> dict[str, str]:
    """Return connection arguments that set LIMITS at the start of each connection."""
    given = ((name, value.replace(" ", r"\ ")) for name, value in LIMITS.items())
    return {"options": " ".join(f"-c {name}={value}" for name, value in given)}


def _create_engine(url: str, pool_size: int, *, has_pooler: bool) -> Engine:
    engine = create_engine(
        url,
        pool_size=pool_size,
        # Allow no overflow: deployments compute the number of Postgres connections from the pool size.
        max_overflow=0,
        pool_timeout=POOL_WAIT_SECONDS,
        # Use the most recently used connection first, so that connections that the load does not need stay idle and
        # may be closed.
        pool_use_lifo=True,
        # Hide parameters, which may be secret or personal: a log line of a failure contains the text of the error.
        hide_parameters=True,
        connect_args={
            "connect_timeout": 5,
            **SILENT_LINK,
            "application_name": "quartermaster",
            # Send no options to a pooler, which refuses them because each of its server connections serves many
            # clients.
            **({"connection_factory": SharedConnection} if has_pooler else _own_limits()),
        },
    )

    @event.listens_for(engine, "checkout")
    def _replace_closed(connection: Any, record: Any, *_: Any) -> None:
        """Replace a pooled connection that Postgres has closed.

        A new connection is not checked: if it is broken, its first statement fails.
        """
        is_new = "has_served" not in record.info
        record.info["has_served"] = True
        if not is_new and is_closed_by_server(connection):
            raise DisconnectionError

    @event.listens_for(engine, "handle_error")
    def _drop_broken_pool(context: Any) -> None:
        """Invalidate the whole pool if one connection is lost: after a restart of Postgres all of them are stale."""
        if context.is_disconnect:
            context.invalidate_pool_on_disconnect = True

    return engine
