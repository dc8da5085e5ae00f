"""The service's processes: what each needs of a deployment, and the exact command that it becomes.

`PROCESS_TYPES` is the one description of them. Tests hold the Procfile, the compose file, the chart, the units and the
runbook to it. All processes are stateless: kill any, run many.
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

# Large buffers freed at the top of the heap make glibc give pages back and fault them in again for every chunk of an
# upload; with these the front receives twice as fast, for 5 MiB more of memory.
ALLOCATOR = {
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TOP_PAD_": "16777216",
}


# Said at every start in a container or a sandbox, where root is no more than a name.
ROOT_WARNING = "You're running the worker with superuser privileges"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A kind of worker process: with how many threads it serves its queues unless the environment says."""

    threads: int
    threads_variable: str


WORKERS = {
    "files": Worker(threads=8, threads_variable="FILES_THREADS"),
    # A thread is made when a call needs it. One organization alone may have seven sixteenths of them at once: 224.
    "models": Worker(threads=512, threads_variable="MODELS_THREADS"),
    "media": Worker(threads=32, threads_variable="MEDIA_THREADS"),
    "agents": Worker(threads=64, threads_variable="AGENTS_THREADS"),
    "background": Worker(threads=4, threads_variable="BACKGROUND_THREADS"),
    "ledger": Worker(threads=4, threads_variable="LEDGER_THREADS"),
}


class Egress(Enum):
    """Where a process connects to besides the servers of its installation."""

    NONE = "none"
    PROVIDERS = "providers of models"
    PUBLIC = "addresses on the public internet that others chose"


NEEDED = frozenset(
    {"BASE_URL", "BLOB_STORE", "DATABASE_URL", "ENCRYPTION_KEYS", "MODELS_REDIS_URL", "REDIS_URL"}
)
"""The settings that every process is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessType:
    """What a deployment has to give one kind of process."""

    command: str  # behind `quartermaster`
    settings: frozenset[str] = NEEDED
    egress: Egress = Egress.NONE
    has_provider_keys: bool = False
    stop_seconds: int | None = 35  # between SIGTERM and SIGKILL; None for one that ends by itself


_WITH_CATALOG = NEEDED | {"MODELS_CONFIG"}
PROCESS_TYPES = {
    "release": ProcessType(
        command="migrate", settings=NEEDED | {"MIGRATIONS_DATABASE_URL"}, stop_seconds=None
    ),
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
"""Every kind of process by its name in the Procfile, in the order of their start."""


def web_command() -> list[str]:
    """Give the command of the HTTP front."""
    return [sys.executable, "-m", "gunicorn", "--config", str(GUNICORN_SETTINGS), "web.wsgi:application"]


def worker_command(name: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Give the command of the worker of this name; TASK_EVENTS has it tell of its tasks, and that it lives."""
    worker = WORKERS[name]
    threads = environment.get(worker.threads_variable) or str(worker.threads)
    return [
        *_celery("workers.app:app", "worker", environment),
        *("--queues", ",".join(WORKER_QUEUES[name]), "--hostname", f"{name}@%h"),
        *("--pool", "threads", "--concurrency", threads),
        *("--without-gossip", "--without-mingle"),
        "--task-events" if _has_events(environment) else "--without-heartbeat",
    ]


def beat_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Give the command of the process that sends out sweeps on schedule; two at once do no harm."""
    # No pid file: a killed beat would leave it behind and keep the next from starting. Nor a file of last runs: every
    # sweep may run again, and beat must not depend on a disk that the sweeps are there to empty.
    return [
        *_celery("workers.beat:app", "beat", environment),
        "--scheduler",
        "workers.beat_scheduler:FixedIntervals",
        "--pidfile",
        "",
    ]


def become(command: list[str]) -> NoReturn:
    """Turn this process into the command, with the allocator tuned unless the environment says otherwise."""
    sys.stdout.flush()
    os.execve(command[0], command, ALLOCATOR | dict(os.environ))  # noqa: S606


def celery_command(flags: Sequence[str]) -> list[str]:
    """Give Celery's own command over the broker of jobs: `inspect`, `control`, `status`, `events`, `flower`."""
    return [sys.executable, "-m", "celery", "--app", "workers.app:app", *flags]


def _has_events(environment: Mapping[str, str]) -> bool:
    return environment.get("TASK_EVENTS", "").lower() in ("1", "true", "t", "yes", "y", "on")


def _celery(app: str, verb: str, environment: Mapping[str, str]) -> list[str]:
    level = environment.get("LOG_LEVEL") or "INFO"
    python = [sys.executable, "-W", f"ignore:{ROOT_WARNING}"]
    return [*python, "-m", "celery", "--quiet", "--app", app, verb, "--loglevel", level]
