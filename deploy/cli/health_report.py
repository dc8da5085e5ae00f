"""Look an installation over: Python, Postgres, Valkey, the store, processes, waiting work, the catalog of models.

Each check says what it found and, where something is amiss, what mends it. A check that fails is a finding too, so one
service that is away hides none of the others.
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

LEAST_POSTGRES = 15
CLOCK_SECONDS = 2.0
FULL_SHARE = 0.8
WAITING_SECONDS = 60.0


class State(StrEnum):
    """How bad a finding is: `wrong` keeps the service, or a part of it, from its work."""

    OK = "ok"
    MENDED = "mended"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check saw; `remedy` says what mends it."""

    subject: str
    state: State
    said: str
    remedy: str | None = None


def good(subject: str, said: str) -> Finding:
    """Make a finding that nothing is amiss."""
    return Finding(subject=subject, state=State.OK, said=said)


def amiss(subject: str, said: str, remedy: str, *, is_wrong: bool = False) -> Finding:
    """Make a finding that somebody should act on."""
    return Finding(
        subject=subject, state=State.WRONG if is_wrong else State.WARNING, said=said, remedy=remedy
    )


Checks = dict[str, Callable[[], Iterator[Finding]]]


def examine(settings: Settings, database: Database, more: Checks | None = None) -> Iterator[Finding]:
    """Run every check, the foundations first; what is well is told where nothing is amiss."""
    checks: Checks = {
        "Python": check_python,
        "Postgres": lambda: check_postgres(database),
        "Valkey": lambda: check_valkey("Valkey", settings.redis_url),
        "Valkey of model calls": lambda: check_models_valkey(settings),
        "broker": lambda: check_broker(settings),
        "blob store": lambda: check_store(settings, database),
        "models": lambda: check_models(settings),
        "processes": lambda: check_processes(settings),
        "waiting work": lambda: check_work(database),
        **(more or {}),
    }
    for subject, check in checks.items():
        try:
            found = list(check())
            yield from [finding for finding in found if finding.state is not State.OK] or found
        except DomainError as error:
            yield amiss(subject, error.detail, _REMEDIES[subject], is_wrong=True)
        except Exception as error:  # noqa: BLE001 (whatever a client library raises is what this is for)
            said = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            yield amiss(subject, said, _REMEDIES[subject], is_wrong=True)


_REMEDIES = {
    "Python": "Install another.",
    "Postgres": "Start it, and compare DATABASE_URL with where it listens.",
    "Valkey": "Start it, and compare REDIS_URL with where it listens.",
    "Valkey of model calls": "Start it, and compare MODELS_REDIS_URL with where it listens.",
    "broker": "Start it, and compare BROKER_URL with where it listens.",
    "blob store": "See that BLOB_STORE is mounted or answers, has room and takes writes.",
    "models": "Run `quartermaster models check`.",
    "processes": "See that METRICS_DIRECTORY is a directory that this account may read.",
    "waiting work": "Mend Postgres first, and the schema with `quartermaster migrate`.",
    "stored content": "Mend Postgres and the blob store first; what was put right until then stays so.",
    "ledger": "Mend Postgres first.",
}


def check_python() -> Iterator[Finding]:
    """Tell of a Python that takes more CPU than it need."""
    version = platform.python_version()
    if not python_build.is_optimized():
        said = f"{version} was built without profile-guided optimization: each request costs about a quarter more CPU"
        yield amiss("Python", said, "Use the distribution's own, or build it with --enable-optimizations.")
    yield good("Python", version)


def check_postgres(database: Database) -> Iterator[Finding]:
    """Compare version, schema, clock, connections and the role's rights."""
    subject = "Postgres"
    with database.transaction() as session:
        asked_at = time.time()
        row = session.execute(_POSTGRES).one()
        clock = float(row.clock) - (asked_at + time.time()) / 2
        is_migrated = session.execute(_HAS_SCHEMA).scalar()
        revision = session.execute(_REVISION).scalar() if is_migrated else None
    version = row.version // 10_000
    if version < LEAST_POSTGRES:
        yield amiss(
            subject, f"is version {version}", f"Upgrade it to {LEAST_POSTGRES} or later.", is_wrong=True
        )
    if revision != (newest := newest_revision()):
        said = f"has schema {revision or 'none'}; this release needs {newest}"
        yield amiss(subject, said, "Run `quartermaster migrate`.", is_wrong=True)
    if abs(clock) > CLOCK_SECONDS:
        yield amiss(subject, f"has a clock {clock:+.1f} s from this host's", "Set both clocks by NTP.")
    if row.connections > FULL_SHARE * row.most:
        said = f"has {row.connections} of {row.most} connections in use"
        yield amiss(subject, said, "Raise max_connections, or lower DATABASE_POOL_SIZE.")
    if missing := find_missing_limits(database):
        said = f"gives connections other limits: {', '.join(missing)}"
        yield amiss(subject, said, "Set DATABASE_POOLER, and run `quartermaster migrate`.", is_wrong=True)
    if row.is_superuser:
        said = "lets the service's role do everything"
        yield amiss(subject, said, "Give the processes a role of their own (deploy/postgres/roles.sql).")
    yield good(subject, f"version {version}, schema {revision}, {row.connections} of {row.most} connections")


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
    """See that it answers, refuses when full instead of dropping messages, and has room."""
    with closing(connect_valkey(url, max_connections=1)) as valkey:
        memory = valkey.info("memory")
        version = valkey.info("server").get("valkey_version") or valkey.info("server")["redis_version"]
    most, used = memory.get("maxmemory") or 0, memory["used_memory"]
    if most and memory.get("maxmemory_policy") != "noeviction":
        said = f"drops messages when it is full ({memory.get('maxmemory_policy')})"
        yield amiss(subject, said, "Set maxmemory-policy noeviction.")
    if most and used > FULL_SHARE * most:
        yield amiss(subject, f"uses {used * 100 // most} % of maxmemory", "Raise maxmemory.")
    yield good(subject, f"version {version}, {used >> 20} MiB in use")


def check_models_valkey(settings: Settings) -> Iterator[Finding]:
    """See that prompts and replies pass through a server that keeps nothing."""
    subject, url = "Valkey of model calls", settings.models_redis_url or settings.redis_url
    with closing(connect_valkey(url, max_connections=1)) as valkey:
        keeps = writes_to_disk(valkey)
    if keeps:
        remedy = "Give MODELS_REDIS_URL a server that is started with --save '' --appendonly no."
        yield amiss(subject, "writes prompts and replies to a disk", remedy)
    if settings.models_redis_url:
        yield from check_valkey(subject, url)


def check_broker(settings: Settings) -> Iterator[Finding]:
    """See that it answers, and that no queue is at its bound."""
    with closing(Broker.of(settings.broker)) as broker:
        depths = {queue: broker.depth(queue) for queue in QUEUES}
    for queue, depth in depths.items():
        if depth >= JOB_MESSAGES_LIMIT:
            said = f"has {depth} messages in the queue {queue}"
            yield amiss("broker", said, "Start workers of that kind; see their logs.")
    yield good("broker", f"{sum(depths.values())} messages in {len(depths)} queues")


def check_store(settings: Settings, database: Database) -> Iterator[Finding]:
    """See that it is the database's own, and takes writes now."""
    store = open_configured_store(settings, database)
    store.require()
    store.check()
    yield good("blob store", f"{settings.blob_store} takes writes")


def check_models(settings: Settings) -> Iterator[Finding]:
    """Read the catalog as the service does."""
    if settings.models_config is None:
        yield good("models", "the built-in scripted ones; MODELS_CONFIG names a catalog")
        return
    try:
        catalog = read_catalog(settings.models_config)
    except CatalogInvalid as error:
        yield amiss("models", "; ".join(error.problems), "Mend MODELS_CONFIG.", is_wrong=True)
        return
    yield good("models", f"{len(catalog)} models of {len(catalog.providers)} providers")


def check_processes(settings: Settings) -> Iterator[Finding]:
    """Count the processes of this host by what they leave in METRICS_DIRECTORY."""
    if settings.metrics_directory is None:
        remedy = "Set it for all processes of a host, or scrape the operations port of each."
        yield amiss("processes", "cannot be counted without METRICS_DIRECTORY", remedy)
        return
    alive = count_processes(settings)
    expected = ("web", *(f"worker-{name}" for name in WORKERS), "beat")
    for missing in (name for name in expected if not alive.get(name)):
        command = f"quartermaster {missing.replace('-', ' ')}"
        yield amiss("processes", f"no {missing} runs on this host", f"Start `{command}`, here or on another.")
    yield good("processes", ", ".join(f"{count} {name}" for name, count in sorted(alive.items())) or "none")


def count_processes(settings: Settings) -> dict[str, int]:
    """Give how many processes of each kind live on this host."""
    return dict(read_host_state(settings).processes)


_NAMES = {"imports": "imports of media", "turns": "turns of agents", "deliveries": "notifications"}


def measure_work(database: Database) -> Iterator[tuple[str, int, float]]:
    """Give each kind of waiting work, how much of it there is, and the age of the oldest in seconds."""
    with database.autocommit() as session:
        work = measure_waiting_work(session)
    for backlog in work.backlogs:
        yield _NAMES.get(backlog.state, f"{backlog.state} content"), backlog.rows, backlog.oldest_seconds
    yield "notifications given up", work.dead_deliveries, 0.0


def check_work(database: Database) -> Iterator[Finding]:
    """See that nothing waits for long, and nothing was given up."""
    waiting = list(measure_work(database))
    for name, count, oldest_seconds in waiting:
        if oldest_seconds > WAITING_SECONDS:
            said = f"{count} {name}, the oldest for {oldest_seconds:.0f} s"
            yield amiss("waiting work", said, "Start more workers of that kind; see their logs.")
        elif name.endswith("given up") and count:
            yield amiss("waiting work", f"{count} {name}", "Mend their endpoints and send them again.")
    yield good("waiting work", f"{sum(count for _, count, _ in waiting)} in all")
