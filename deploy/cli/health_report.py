"""Checks of `quartermaster doctor`: Python, Postgres, Valkey, broker, blob store, models, processes and backlogs.

Each check yields findings, and each finding of a problem has a remedy. If a check raises an exception, the exception
becomes a finding, so that one unreachable server does not hide the results of other checks.
"""

import platform
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import text

from deploy import python_build
from deploy.process_types import WORKERS
from shared.config.settings import Settings
from shared.db.database import Database
from shared.db.role_limits import find_missing_limits
from shared.errors import DomainError
from shared.files.stores import open_configured_store
from shared.messaging.broker import JOB_MESSAGES_LIMIT, Broker
from shared.messaging.queues import QUEUES
from shared.messaging.valkey import connect_valkey, writes_to_disk
from shared.migrations.runner import newest_revision
from shared.models.catalog_format import CatalogInvalid, read_catalog
from shared.operations.host_status import read_host_state
from shared.operations.queue_depths import measure_waiting_work

MIN_POSTGRES_VERSION = 15
# Guarantees hold up to 30 s (deploy/README.md#clocks). NTP keeps the difference far smaller, so a difference of 2 s
# shows that NTP does not run.
MAX_CLOCK_OFFSET_SECONDS = 2.0
FULL_SHARE = 0.8  # warn if a larger share of memory or connections is in use
WAITING_SECONDS = 60.0
_DEAD_NOTIFICATIONS = "notifications given up"


class State(StrEnum):
    """The severity of a finding. `wrong` means that some function of the service cannot work."""

    OK = "ok"
    # Keep the value `mended`, because scripts read the state from the JSON output.
    REPAIRED = "mended"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a check. `remedy` states what the operator should do."""

    subject: str
    state: State
    detail: str
    remedy: str | None = None


def passed(subject: str, detail: str) -> Finding:
    """Return a finding which states that a check found no problem."""
    return Finding(subject=subject, state=State.OK, detail=detail)


def problem(subject: str, detail: str, remedy: str, *, is_wrong: bool = False) -> Finding:
    """Return a finding that the operator should act on: a warning, or an error if `is_wrong`."""
    return Finding(
        subject=subject, state=State.WRONG if is_wrong else State.WARNING, detail=detail, remedy=remedy
    )


Checks = dict[str, Callable[[], Iterator[Finding]]]


def run_checks(settings: Settings, database: Database, more: Checks | None = None) -> Iterator[Finding]:
    """Yield the findings of all checks. A check runs after the checks of what it depends on.

    If a check finds problems, only these findings are yielded; its findings without a problem are omitted.
    """
    checks: Checks = {
        # Check servers first: findings about processes and backlogs mean little while a server is down.
        "Python": check_python,
        "Postgres": lambda: check_postgres(database),
        "Valkey": lambda: check_valkey("Valkey", settings.redis_url),
        "Valkey of model calls": lambda: check_models_valkey(settings),
        "broker": lambda: check_broker(settings),
        "blob store": lambda: check_store(settings, database),
        "models": lambda: check_models(settings),
        "processes": lambda: check_processes(settings),
        "waiting work": lambda: check_backlogs(database),
        **(more or {}),
    }
    for subject, check in checks.items():
        try:
            found = list(check())
            yield from [finding for finding in found if finding.state is not State.OK] or found
        except DomainError as error:
            yield problem(subject, error.detail, _REMEDIES[subject], is_wrong=True)
        except Exception as error:  # noqa: BLE001 (client libraries raise errors of their own; each is a finding)
            # Show only the first line: SQLAlchemy appends the statement with its parameters, and libpq appends a hint.
            detail = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            yield problem(subject, detail, _REMEDIES[subject], is_wrong=True)


_REMEDIES = {
    "Python": "Install another Python.",
    "Postgres": "Start it, and compare DATABASE_URL with the address at which it listens.",
    "Valkey": "Start it, and compare REDIS_URL with the address at which it listens.",
    "Valkey of model calls": "Start it, and compare MODELS_REDIS_URL with the address at which it listens.",
    "broker": "Start it, and compare BROKER_URL with the address at which it listens.",
    "blob store": "Check that BLOB_STORE is mounted or reachable, has free space and accepts writes.",
    "models": "Run `quartermaster models check`.",
    "processes": "Check that METRICS_DIRECTORY is a directory that this account may read.",
    "waiting work": "Repair Postgres first, then its schema with `quartermaster migrate`.",
    "stored content": "Repair Postgres and the blob store first; repairs made until now are kept.",
    "ledger": "Repair Postgres first.",
}


def check_python() -> Iterator[Finding]:
    """Check that this Python was built with profile-guided optimization."""
    version = platform.python_version()
    if not python_build.is_optimized():
        detail = f"{version} was built without profile-guided optimization: requests take about 25 % more CPU"
        yield problem(
            "Python", detail, "Use the distribution's Python, or build with --enable-optimizations."
        )
    yield passed("Python", version)


def check_postgres(database: Database) -> Iterator[Finding]:
    """Check Postgres' version, schema revision, clock and connections, and the rights of the service's role."""
    subject = "Postgres"
    with database.transaction() as session:
        sent_at = time.time()
        row = session.execute(_POSTGRES).one()
        # Postgres read its clock between the two local readings, so compare with the middle of the two.
        clock_offset = float(row.clock) - (sent_at + time.time()) / 2
        # Check whether the table exists first: a select from a missing table would abort the transaction.
        is_migrated = session.execute(_HAS_SCHEMA).scalar()
        revision = session.execute(_REVISION).scalar() if is_migrated else None
    version = row.version // 10_000
    if version < MIN_POSTGRES_VERSION:
        yield problem(
            subject, f"is version {version}", f"Upgrade it to {MIN_POSTGRES_VERSION} or later.", is_wrong=True
        )
    if revision != (newest := newest_revision()):
        detail = f"has schema {revision or 'none'}; this release needs {newest}"
        yield problem(subject, detail, "Run `quartermaster migrate`.", is_wrong=True)
    if abs(clock_offset) > MAX_CLOCK_OFFSET_SECONDS:
        detail = f"clock differs from this host's by {clock_offset:+.1f} s"
        yield problem(subject, detail, "Synchronize both clocks by NTP.")
    if row.connections > FULL_SHARE * row.most:
        detail = f"has {row.connections} of {row.most} connections in use"
        yield problem(subject, detail, "Raise max_connections or lower DATABASE_POOL_SIZE.")
    if missing := find_missing_limits(database):
        detail = f"connections have wrong time limits: {', '.join(missing)}"
        yield problem(subject, detail, "Set DATABASE_POOLER, and run `quartermaster migrate`.", is_wrong=True)
    if row.is_superuser:
        detail = "the service's role is a superuser"
        yield problem(subject, detail, "Create an unprivileged role (deploy/postgres/roles.sql).")
    yield passed(
        subject, f"version {version}, schema {revision}, {row.connections} of {row.most} connections"
    )


# Count only client backends: background processes do not count against max_connections.
_POSTGRES = text(
    """
SELECT current_setting('server_version_num')::integer AS version, extract(epoch FROM clock_timestamp()) AS clock,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
    current_setting('max_connections')::integer AS most,
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS is_superuser
"""
)
_HAS_SCHEMA = text("SELECT to_regclass('alembic_version') IS NOT NULL")
_REVISION = text("SELECT version_num FROM alembic_version")


def check_valkey(subject: str, url: str) -> Iterator[Finding]:
    """Check that Valkey responds and has free memory, and that a full Valkey rejects writes and evicts no messages."""
    with closing(connect_valkey(url, max_connections=1)) as valkey:
        memory = valkey.info("memory")
        version = valkey.info("server").get("valkey_version") or valkey.info("server")["redis_version"]
    most, used = memory.get("maxmemory") or 0, memory["used_memory"]
    # Check the policy only if maxmemory is set: without maxmemory, Valkey evicts nothing.
    if most and memory.get("maxmemory_policy") != "noeviction":
        detail = f"evicts messages when it is full (maxmemory-policy {memory.get('maxmemory_policy')})"
        yield problem(subject, detail, "Set maxmemory-policy to noeviction.")
    if most and used > FULL_SHARE * most:
        yield problem(subject, f"uses {used * 100 // most} % of maxmemory", "Raise maxmemory.")
    yield passed(subject, f"version {version}, {used >> 20} MiB in use")


def check_models_valkey(settings: Settings) -> Iterator[Finding]:
    """Check that the Valkey server of model calls does not write prompts and replies to a disk."""
    subject, url = "Valkey of model calls", settings.models_redis_url or settings.redis_url
    with closing(connect_valkey(url, max_connections=1)) as valkey:
        keeps = writes_to_disk(valkey)
    if keeps:
        remedy = "Point MODELS_REDIS_URL at a server that runs with --save '' --appendonly no."
        yield problem(subject, "writes prompts and replies to a disk", remedy)
    # Check the server only if it has its own URL: otherwise the check "Valkey" has reported on this server.
    if settings.models_redis_url:
        yield from check_valkey(subject, url)


def check_broker(settings: Settings) -> Iterator[Finding]:
    """Check that the broker responds, and that no queue has reached its limit of messages."""
    with closing(Broker.of(settings.broker)) as broker:
        depths = {queue: broker.depth(queue) for queue in QUEUES}
    for queue, depth in depths.items():
        if depth >= JOB_MESSAGES_LIMIT:
            detail = f"queue {queue} is full: {depth} messages"
            yield problem(
                "broker", detail, "Start workers for that queue, and read the logs of those that run."
            )
    yield passed("broker", f"{sum(depths.values())} messages in {len(depths)} queues")


def check_store(settings: Settings, database: Database) -> Iterator[Finding]:
    """Check that the blob store has this database's marker and accepts a write."""
    store = open_configured_store(settings, database)
    # Compare the marker first: check() writes, and must not write into the store of another database.
    store.require()
    store.check()
    yield passed("blob store", f"{settings.blob_store} accepts writes")


def check_models(settings: Settings) -> Iterator[Finding]:
    """Check the model catalog with the parser that the service uses."""
    if settings.models_config is None:
        yield passed("models", "built-in scripted models (set MODELS_CONFIG to use a catalog)")
        return
    try:
        catalog = read_catalog(settings.models_config)
    except CatalogInvalid as error:
        remedy = "Correct the file named by MODELS_CONFIG."
        yield problem("models", "; ".join(error.problems), remedy, is_wrong=True)
        return
    yield passed("models", f"{len(catalog)} models of {len(catalog.providers)} providers")


def check_processes(settings: Settings) -> Iterator[Finding]:
    """Check that each process type runs on this host, by its files in METRICS_DIRECTORY."""
    if settings.metrics_directory is None:
        remedy = "Set it for all processes of the host, or scrape each process's operations port."
        yield problem("processes", "METRICS_DIRECTORY is not set, so processes cannot be counted", remedy)
        return
    alive = count_processes(settings)
    expected = ("web", *(f"worker-{name}" for name in WORKERS), "beat")
    # Yield a warning and not an error: a missing process may run on another host, whose files are not visible here.
    for missing in (name for name in expected if not alive.get(name)):
        command = f"quartermaster {missing.replace('-', ' ')}"
        remedy = f"Start `{command}` here or on another host."
        yield problem("processes", f"no {missing} runs on this host", remedy)
    yield passed("processes", ", ".join(f"{count} {name}" for name, count in sorted(alive.items())) or "none")


def count_processes(settings: Settings) -> dict[str, int]:
    """Return the number of running processes on this host for each process type."""
    return dict(read_host_state(settings).processes)


_NAMES = {"imports": "imports of media", "turns": "turns of agents", "deliveries": "notifications"}


def measure_backlogs(database: Database) -> Iterator[tuple[str, int, float]]:
    """Yield each backlog: its name, its number of rows, and the age of its oldest row in seconds."""
    with database.autocommit() as session:
        work = measure_waiting_work(session)
    for backlog in work.backlogs:
        yield _NAMES.get(backlog.state, f"{backlog.state} content"), backlog.rows, backlog.oldest_seconds
    # Yield 0 as the age: workers do not retry dead notifications, so their age shows nothing about the workers.
    yield _DEAD_NOTIFICATIONS, work.dead_deliveries, 0.0


def check_backlogs(database: Database) -> Iterator[Finding]:
    """Check that no row has been pending for more than a minute, and that no notification is dead."""
    backlogs = list(measure_backlogs(database))
    for name, count, oldest_seconds in backlogs:
        if oldest_seconds > WAITING_SECONDS:
            yield old_backlog(name, count, oldest_seconds)
        elif name == _DEAD_NOTIFICATIONS and count:
            remedy = "Correct their endpoints, then run `quartermaster notifications resend-dead`."
            yield problem("waiting work", f"{count} {name}", remedy)
    yield passed("waiting work", f"{sum(count for _, count, _ in backlogs)} pending")


def old_backlog(name: str, count: int, oldest_seconds: float) -> Finding:
    """Return a finding about a backlog that workers do not process fast enough."""
    detail = f"{count} {name}, the oldest pending for {oldest_seconds:.0f} s"
    return problem(
        "waiting work", detail, "Start more workers of that kind, and read the logs of those that run."
    )
