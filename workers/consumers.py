"""A part of a Celery worker that takes work itself, from its start until it is asked to stop, besides its messages."""

from collections.abc import Callable
from typing import Any, Protocol

from celery import Celery, bootsteps

from workers.handling import WorkerContext


class Consumers(Protocol):
    """What takes the work of a queue."""

    def start(self) -> None:
        """Begin to take work."""

    def drain(self) -> None:
        """Let what is under way end for a while: the worker is asked to stop."""

    def stop(self) -> None:
        """Take no more, and wait for what is under way."""


def add_step(app: Celery, context: WorkerContext, queue: str, make: Callable[[int], Consumers]) -> None:
    """Have the worker of a queue start consumers for as many pieces of work at once as it has threads."""

    class ConsumersStep(bootsteps.StartStopStep):
        """Starts between the worker's pool and its consumer of messages."""

        requires = ("celery.worker.components:Pool",)
        consumers: Consumers | None = None

        def include_if(self, worker: Any) -> bool:
            return queue in worker.app.amqp.queues.consume_from

        def start(self, worker: Any) -> None:
            self.consumers = make(worker.concurrency)
            self.consumers.start()
            context.when_stopping(self.consumers.drain)

        def stop(self, worker: Any) -> None:  # noqa: ARG002 (Celery's signature)
            if self.consumers is not None:
                self.consumers.stop()

    app.steps["worker"].add(ConsumersStep)
