"""The process types of the service. Each type has settings, network access, a stop time and a command.

Only `PROCESS_TYPES` defines the types. Tests compare this definition with the Procfile, the compose file, the chart,
the systemd units and the runbook. All processes are stateless, so any process may be killed, and several processes of
the same type may run.
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

# By default glibc returns freed buffers to the kernel, and page faults occur again for every chunk of an upload. These
# settings keep the buffers: they double the upload speed of a web process and cost 5 MiB of memory.
ALLOCATOR = {
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TOP_PAD_": "16777216",
}


# Suppress this warning of Celery: in a container, root has no rights outside of the container.
ROOT_WARNING = "You're running the worker with superuser privileges"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker process: the default number of threads, and the environment variable that overrides the number."""

    threads: int
    threads_variable: str


WORKERS = {
    "files": Worker(threads=8, threads_variable="FILES_THREADS"),
    # Threads are created on demand. One organization may use at most 7/16 of the threads (224) at a time.
    "models": Worker(threads=512, threads_variable="MODELS_THREADS"),
    "media": Worker(threads=32, threads_variable="MEDIA_THREADS"),
    "agents": Worker(threads=64, threads_variable="AGENTS_THREADS"),
    "background": Worker(threads=4, threads_variable="BACKGROUND_THREADS"),
    "ledger": Worker(threads=4, threads_variable="LEDGER_THREADS"),
}


class Egress(Enum):
    """The network destinations outside of the installation to which a process connects."""

    NONE = "none"
    PROVIDERS = "providers of models"
    PUBLIC = "public internet addresses that users choose"


NEEDED = frozenset(
    {"BASE_URL", "BLOB_STORE", "DATABASE_URL", "ENCRYPTION_KEYS", "MODELS_REDIS_URL", "REDIS_URL"}
)
"""The settings that every process requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessType:
    """One process type: its command, and what its processes require."""

    command: str  # arguments of `quartermaster`
    settings: frozenset[str] = NEEDED
    egress: Egress = Egress.NONE
    has_provider_keys: bool = False
    stop_seconds: int | None = 35  # time from SIGTERM to SIGKILL; None for a process that ends by itself


_WITH_CATALOG = NEEDED | {"MODELS_CONFIG"}
PROCESS_TYPES = {
    "release": ProcessType(
        command="migrate", settings=NEEDED | {"MIGRATIONS_DATABASE_URL"}, stop_seconds=None
    ),
    # Allow at least 5 s more than a process needs to drain, so that SIGKILL interrupts no response.
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
    """Return the command of a worker. With TASK_EVENTS, the worker sends Celery's task events and heartbeats."""
    worker = WORKERS[name]
    threads = environment.get(worker.threads_variable) or str(worker.threads)
    return [
        *_celery("workers.app:app", "worker", environment),
        *("--queues", ",".join(WORKER_QUEUES[name]), "--hostname", f"{name}@%h"),
        *("--pool", "threads", "--concurrency", threads),
        # Disable messages between workers: the state of all work is in Postgres.
        *("--without-gossip", "--without-mingle"),
        "--task-events" if _has_events(environment) else "--without-heartbeat",
    ]


def beat_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command of beat, which schedules sweeps. More than one may run, because sweeps are idempotent."""
    # Write no pid file: a killed beat would leave the file, and the next beat could not start. Write no schedule file:
    # sweeps may repeat, and beat must also run when the disk is full, because sweeps free space.
    return [
        *_celery("workers.beat:app", "beat", environment),
        "--scheduler",
        "workers.beat_scheduler:FixedIntervals",
        "--pidfile",
        "",
    ]


def become(command: list[str]) -> NoReturn:
    """Replace this process by the command, with the allocator settings unless the environment overrides them."""
    # Flush first, because exec discards the buffers of this process.
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
