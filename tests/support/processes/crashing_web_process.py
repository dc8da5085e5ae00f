"""A web process that dies at a fault point, as often as it is armed.

The serving process is forked from one that has imported everything (`process_forks.py`), and its parent restarts it
after each death.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import psutil

from deploy.process_types import web_command
from tests.support.processes.stack import Service, Stack, free_port, wait_until

_REPLACED = {"web.wsgi:application": "tests.support.processes.crashing_application:application"}


class DoomedFront:
    """A web process of one worker under a parent; at first it is not armed."""

    def __init__(self, stack: Stack) -> None:
        port = free_port()
        self._point = stack.directory / f"point-of-{port}"
        self._point.touch()
        self._stack = stack
        command = [_REPLACED.get(part, part) for part in web_command()]
        self._front = stack.web_by(
            command, port=port, settings={"DYING_AT": str(self._point), "WEB_PROCESSES": "1"}
        )

    @contextmanager
    def running(self) -> Iterator[Self]:
        with self._stack.running(self._front):
            yield self

    def armed(self, point: str) -> Service:
        """Restart the serving process, armed to die at this point."""
        self._point.write_text(point)
        before = self._children()
        for child in before:
            child.kill()
        wait_until(lambda: self._children() - before, "the front is started again")
        self._front.wait_until_answering()
        return self._front

    def _children(self) -> set[psutil.Process]:
        return set(psutil.Process(self._front.pid).children())
