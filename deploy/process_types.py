"""The process types of the service: settings, network access and stop time of each, and the command it executes.

`PROCESS_TYPES` is their only definition. Tests compare it with the Procfile, the compose file, the chart, the systemd
units and the runbook. All processes are stateless: any may be killed, and each may run many times.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NoReturn

from shared.messaging.queues import WORKER_QUEUES

GUNICORN_SETTINGS = Path(__file__).with_name("gunicorn.conf.py")

# By default glibc returns freed buffers to the kernel, and faults the pages in again for every chunk of an upload.
# These settings double the upload speed of a web process, at 5 MiB more memory.
ALLOCATOR = {
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TOP_PAD_": "16777216",
}


# Celery's warning, which is suppressed: in a container, root has no rights outside it.
ROOT_WARNING = "You're running the worker with superuser privileges"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker process: its default number of threads, and the environment variable that overrides it."""

    threads: int
    threads_variable: str


WORKERS = {
    "files": Worker(threads=8, threads_variable="FILES_THREADS"),
    # Threads are created on demand. One organization may use at most 7/16 of them, 224, at a time.
    "models": Worker(threads=512, threads_variable="MODELS_THREADS"),
    "media": Worker(threads=32, threads_variable="MEDIA_THREADS"),
    "agents": Worker(threads=64, threads_variable="AGENTS_THREADS"),
    "background": Worker(threads=4, threads_variable="BACKGROUND_THREADS"),
    "ledger": Worker(threads=4, threads_variable="LEDGER_THREADS"),
}


class Egress(Enum):
    """Network destinations of a process outside its installation."""

    NONE = "none"
    PROVIDERS = "providers of models"
    PUBLIC = "public internet addresses that users choose"


NEEDED = frozenset(
    {"BASE_URL", "BLOB_STORE", "DATABASE_URL", "ENCRYPTION_KEYS", "MODELS_REDIS_URL", "REDIS_URL"}
)
"""The settings that every process requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessType:
    """The requirements of one process type."""

    command: str  # arguments of `quartermaster`
    settings: frozenset[str] = NEEDED
    egress: Egress = Egress.NONE
    has_provider_keys: bool = False
    stop_seconds: int | None = 35  # from SIGTERM to SIGKILL; None for a process that ends by itself


_WITH_CATALOG = NEEDED | {"MODELS_CONFIG"}
PROCESS_TYPES = {
    "release": ProcessType(
        command="migrate", settings=NEEDED | {"MIGRATIONS_DATABASE_URL"}, stop_seconds=None
    ),
    # 5 s and more above the time in which a process drains by itself, so that SIGKILL truncates nothing.
    "web": ProcessType(command="web", settings=_WITH_CATALOG, stop_seconds=40),
    "worker-files": ProcessType(command="worker files"),
    "worker-models": ProcessType(
        command="worker models", settings=_WITH_CATALOG, egress=Egress.PROVIDERS, has_provider_keys=True
    ),
    "worker-media": ProcessType(command="worker media", egress=Egress.PUBLIC),
    "worker-agents": ProcessType(
        command="worker agents", settings=_WITH_CATALOG, egress=Egress.PUBLIC, has_provider_keys=True
    ),
    "worker-background": ProcessType(command="worker background"),
    "worker-ledger": ProcessType(command="worker ledger"),
    "beat": ProcessType(command="beat", stop_seconds=10),
}
"""All process types by their names in the Procfile, in start order."""


def web_command() -> list[str]:
    """Return the command of a web process."""
    return [sys.executable, "-m", "gunicorn", "--config", str(GUNICORN_SETTINGS), "web.wsgi:application"]


def worker_command(name: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command of a worker; with TASK_EVENTS it sends Celery's task events and heartbeats."""
    worker = WORKERS[name]
    threads = environment.get(worker.threads_variable) or str(worker.threads)
    return [
        *_celery("workers.app:app", "worker", environment),
        *("--queues", ",".join(WORKER_QUEUES[name]), "--hostname", f"{name}@%h"),
        *("--pool", "threads", "--concurrency", threads),
        # Workers need nothing of each other: the state of work is in Postgres.
        *("--without-gossip", "--without-mingle"),
        "--task-events" if _has_events(environment) else "--without-heartbeat",
    ]


def beat_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command of the scheduler of sweeps. Several may run: sweeps are idempotent."""
    # No pid file: a killed beat would leave it, and the next could not start. No schedule file: sweeps may repeat, and
    # beat must run when the disk is full, because sweeps free space.
    return [
        *_celery("workers.beat:app", "beat", environment),
        "--scheduler",
        "workers.beat_scheduler:FixedIntervals",
        "--pidfile",
        "",
    ]


def become(command: list[str]) -> NoReturn:
    """Replace this process by the command, with the allocator settings unless the environment overrides them."""
    # exec discards the buffers of this process.
    sys.stdout.flush()
    os.execve(command[0], command, ALLOCATOR | dict(os.environ))  # noqa: S606


def celery_command(flags: Sequence[str]) -> list[str]:
    """Return a command of Celery against the job broker: `inspect`, `control`, `status`, `events` or `flower`."""
    return [sys.executable, "-m", "celery", "--app", "workers.app:app", *flags]


def _has_events(environment: Mapping[str, str]) -> bool:
    return environment.get("TASK_EVENTS", "").lower() in ("1", "true", "t", "yes", "y", "on")


def _celery(app: str, verb: str, environment: Mapping[str, str]) -> list[str]:
    level = environment.get("LOG_LEVEL") or "INFO"
    python = [sys.executable, "-W", f"ignore:{ROOT_WARNING}"]
    return [*python, "-m", "celery", "--quiet", "--app", app, verb, "--loglevel", level]
