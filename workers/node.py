"""What a worker process is to Celery: a node with a name of its own that stops softly and declares what it needs."""

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
    """A worker whose name is its own on its host, and whose soft shutdown ends with its last job."""

    hostname: str

    def on_before_init(self, quiet: bool = False, **options: Any) -> None:  # noqa: FBT001, FBT002 (Celery's signature)
        """Add the process's id to a name that the other workers of its kind on this host have too."""
        self.hostname = unique_name(self.hostname)
        super().on_before_init(quiet=quiet, **options)

    def install_platform_tweaks(self, worker: Any) -> None:
        """Have SIGQUIT, and a second SIGINT, only ask for the soft shutdown, as SIGTERM asks for the warm one.

        Celery carries it out within the signal's handler. There it waits for threads, and does so for ever if what the
        signal interrupted holds a lock that they need, or that of the pool which is starting one.
        """
        super().install_platform_tweaks(worker)
        _signals.install_worker_term_hard_handler(worker, callback=None)
        _signals.install_worker_int_handler(worker, callback=_ask_on_next_interrupt)

    def terminate(self, in_sighandler: bool = False) -> None:  # noqa: FBT001, FBT002 (Celery's signature)
        """Stop softly; called by the consumer's loop, which holds no lock."""
        state.should_terminate = None  # as it is while a handler of Celery's waits
        _signals.on_cold_shutdown(self)
        super().terminate(in_sighandler)

    def wait_for_soft_shutdown(self) -> Any:
        """Let jobs go on until the last has ended, for `worker_soft_shutdown_timeout` at the most."""
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
    """Celery's consumer without the 28 queues that it declares on RabbitMQ for messages with an ETA: we send none."""

    class Blueprint(_Blueprint):  # type: ignore[misc] # untyped
        """The steps without that one."""

        default_steps = tuple(
            step for step in _Blueprint.default_steps if not str(step).endswith(":DelayedDelivery")
        )


def unique_name(hostname: str) -> str:
    """Give `files-4242@host` for `files@host`; a name that an operator chose stays."""
    kind, _, host = hostname.partition("@")
    return f"{kind}-{os.getpid()}@{host}" if kind in WORKER_QUEUES else hostname


def kind_of(hostname: str) -> str:
    """Give the kind of worker that a node's name begins with; the name itself where it is an operator's."""
    name = hostname.partition("@")[0]
    kind = name.rpartition("-")[0]
    return kind if kind in WORKER_QUEUES else name
