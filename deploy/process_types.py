"""The service's processes and the exact command of each: what `quartermaster web`, `worker` and `beat` become.

The Procfile, the image and the tests start these. All are stateless: kill any, run many.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from shared.queues import WORKER_QUEUES

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


def web_command() -> list[str]:
    """Give the command of the HTTP front."""
    return [sys.executable, "-m", "gunicorn", "--config", str(GUNICORN_SETTINGS), "web.wsgi:application"]


def worker_command(name: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Give the command of the worker of this name."""
    worker = WORKERS[name]
    threads = environment.get(worker.threads_variable) or str(worker.threads)
    return [
        *_celery("workers.app:app", "worker", environment),
        *("--queues", ",".join(WORKER_QUEUES[name]), "--hostname", f"{name}@%h"),
        *("--pool", "threads", "--concurrency", threads),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    ]


def beat_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Give the command of the process that sends out sweeps on schedule; two at once do no harm."""
    # No pid file: a killed beat would leave it behind and keep the next from starting. Nor a file of last runs: every
    # sweep may run again, and beat must not depend on a disk that the sweeps are there to empty.
    return [
        *_celery("workers.beat:app", "beat", environment),
        "--scheduler",
        "celery.beat:Scheduler",
        "--pidfile",
        "",
    ]


def become(command: list[str]) -> NoReturn:
    """Turn this process into the command, with the allocator tuned unless the environment says otherwise."""
    sys.stdout.flush()
    os.execve(command[0], command, ALLOCATOR | dict(os.environ))  # noqa: S606


def _celery(app: str, verb: str, environment: Mapping[str, str]) -> list[str]:
    level = environment.get("LOG_LEVEL") or "INFO"
    python = [sys.executable, "-W", f"ignore:{ROOT_WARNING}"]
    return [*python, "-m", "celery", "--quiet", "--app", app, verb, "--loglevel", level]
