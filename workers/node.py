"""The Celery node of a worker process: a unique name, a soft shutdown, and only the queues that it needs."""

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
    """A worker with a name that is unique on its host, and a soft shutdown that ends with its last job."""

    hostname: str

    def on_before_init(self, quiet: bool = False, **options: Any) -> None:  # noqa: FBT001, FBT002 (Celery's signature)
        """Add the process's id to a name that other workers of the same kind on this host share."""
        self.hostname = unique_name(self.hostname)
        super().on_before_init(quiet=quiet, **options)

    def install_platform_tweaks(self, worker: Any) -> None:
        """Make SIGQUIT, and a second SIGINT, only request the soft shutdown, as SIGTERM requests the warm one.

        Celery runs it within the signal's handler. There it waits for threads, and would wait forever if the
        interrupted code held a lock that they need, or the lock of the pool that is starting one.
        """
        super().install_platform_tweaks(worker)
        _signals.install_worker_term_hard_handler(worker, callback=None)
        _signals.install_worker_int_handler(worker, callback=_ask_on_next_interrupt)

    def terminate(self, in_sighandler: bool = False) -> None:  # noqa: FBT001, FBT002 (Celery's signature)
        """Stop softly. Called by the consumer's loop, which holds no lock."""
        # The value that it has while Celery's own handler waits.
        state.should_terminate = None
        # In the loop instead of the signal handler, which may have interrupted the owner of a lock.
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
        """The steps without that one."""

        default_steps = tuple(
            step for step in _Blueprint.default_steps if not str(step).endswith(":DelayedDelivery")
        )


def unique_name(hostname: str) -> str:
    """Return `files-4242@host` for `files@host`; a name that an operator chose is unchanged."""
    kind, _, host = hostname.partition("@")
    return f"{kind}-{os.getpid()}@{host}" if kind in WORKER_QUEUES else hostname


def kind_of(hostname: str) -> str:
    """Return the kind of worker in a node's name, or the name itself if an operator chose it."""
    name = hostname.partition("@")[0]
    kind = name.rpartition("-")[0]
    return kind if kind in WORKER_QUEUES else name
