"""The Celery node of a worker process, with a unique name, a soft shutdown, and no queues for delayed messages."""

import os
import time
from typing import Any

from celery.apps import worker as celery_worker
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.consumer import Consumer

from shared.messaging.queues import WORKER_QUEUES

_signals: Any = celery_worker  # which its types do not name
log = get_logger(__name__)
POLL_SECONDS = 0.1


class Node(celery_worker.Worker):
    """A worker with a name that is unique on its host. Its soft shutdown ends as soon as the last job has ended."""

    hostname: str

    def on_before_init(self, quiet: bool = False, **options: Any) -> None:  # noqa: FBT001, FBT002 (Celery's signature)
        """Add the process's id to the worker's name, which other workers of the same kind on this host share."""
        self.hostname = unique_name(self.hostname)
        super().on_before_init(quiet=quiet, **options)

    def install_platform_tweaks(self, worker: Any) -> None:
        """Make SIGQUIT, and a second SIGINT, only request the soft shutdown, which then runs in the consumer's loop.

        Celery runs the soft shutdown within the signal handler, where it waits for threads. If the interrupted code
        held a lock that these threads need, the handler would wait forever.
        """
        super().install_platform_tweaks(worker)
        _signals.install_worker_term_hard_handler(worker, callback=None)
        _signals.install_worker_int_handler(worker, callback=_ask_on_next_interrupt)

    def terminate(self, in_sighandler: bool = False) -> None:  # noqa: FBT001, FBT002 (Celery's signature)
        """Run the soft shutdown, then terminate. Called by the consumer's loop, which holds no lock."""
        # Reset the request, as Celery's own handler does while it waits for jobs.
        state.should_terminate = None
        # Run this in the loop: a signal handler may have interrupted the owner of a lock.
        _signals.on_cold_shutdown(self)
        super().terminate(in_sighandler)

    def wait_for_soft_shutdown(self) -> Any:
        """Wait until the last job has ended, for at most `worker_soft_shutdown_timeout` seconds."""
        timeout = self.app.conf.worker_soft_shutdown_timeout
        log.warning("Initiating Soft Shutdown, terminating in %s seconds at the latest", timeout)
        gives_up_at = time.monotonic() + timeout
        while state.active_requests and time.monotonic() < gives_up_at:
            time.sleep(POLL_SECONDS)


def _ask_on_next_interrupt(worker: Any) -> None:
    _signals.on_SIGINT(worker)
    _signals.install_worker_term_hard_handler(worker, sig="SIGINT", callback=None, verbose=False)


_Blueprint: Any = Consumer.Blueprint


class LeanConsumer(Consumer):
    """Celery's consumer without the 28 RabbitMQ queues for messages with an ETA, which this service never sends."""

    class Blueprint(_Blueprint):  # type: ignore[misc] # untyped
        """The steps of Celery's consumer without `DelayedDelivery`, which creates these queues."""

        default_steps = tuple(
            step for step in _Blueprint.default_steps if not str(step).endswith(":DelayedDelivery")
        )


def unique_name(hostname: str) -> str:
    """Return `files-4242@host` for `files@host`, or a name that an operator chose unchanged."""
    kind, _, host = hostname.partition("@")
    return f"{kind}-{os.getpid()}@{host}" if kind in WORKER_QUEUES else hostname


def kind_of(hostname: str) -> str:
    """Return the kind of worker in a node's name, or the name itself if an operator chose it."""
    name = hostname.partition("@")[0]
    kind = name.rpartition("-")[0]
    return kind if kind in WORKER_QUEUES else name
