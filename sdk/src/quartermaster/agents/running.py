"""Run a skill, whatever kind of function it is, and give what it yields or returns.

Functions that are not `async` run in threads, generators step by step, in one context of their own: contextvars of
one request never reach another. A cancelled turn does not wait for a thread: its generator is closed after the step.
"""

import contextvars
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from typing import Any

import anyio.to_thread

_END = object()


async def run_skill(
    function: Callable[..., Any], limiter: anyio.CapacityLimiter
) -> AsyncGenerator[Any, None]:
    """Call a function without arguments; `limiter` bounds how many threads run at once."""
    if inspect.isasyncgenfunction(_wrapped(function)):
        generator = function()
        try:
            async for output in generator:
                yield output
        finally:
            await generator.aclose()
    elif inspect.iscoroutinefunction(_wrapped(function)):
        yield await function()
    else:
        async for output in _run_in_threads(function, limiter):
            yield output


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    return function.func if isinstance(function, partial) else function


async def _run_in_threads(
    function: Callable[..., Any], limiter: anyio.CapacityLimiter
) -> AsyncGenerator[Any, None]:
    context = contextvars.copy_context()

    async def call(step: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(context.run, step, abandon_on_cancel=True, limiter=limiter)

    output = await call(function)
    if not inspect.isgenerator(output):
        yield output
        return
    steps = _Steps(output)
    try:
        while (yielded := await call(steps.advance)) is not _END:
            yield yielded
    finally:
        steps.close(context.copy())


class _Steps:
    """A generator whose turn may end while a thread is still within a step."""

    def __init__(self, generator: Generator[Any, Any, Any]) -> None:
        self._generator = generator
        self._stepping = threading.Lock()

    def advance(self) -> Any:
        with self._stepping:
            return next(self._generator, _END)

    def close(self, context: contextvars.Context) -> None:
        """Let what the generator cleans up run after the step, in a thread: nobody waits for it."""
        if inspect.getgeneratorstate(self._generator) != inspect.GEN_CLOSED:
            threading.Thread(target=context.run, args=(self._close,), daemon=True).start()

    def _close(self) -> None:
        with self._stepping:
            self._generator.close()
