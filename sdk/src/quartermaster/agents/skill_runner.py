"""Run a skill and yield its outputs. The skill is a function or a generator, and may be `async`.

A skill that is not `async` runs in threads, in a copy of the request's context. Each step of such a generator is a
separate call in a thread. A cancellation does not wait for the thread. The generator is closed after its current step.
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
    """Call a function without arguments, and yield its outputs. `limiter` limits the number of threads."""
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
    threaded = _ThreadedGenerator(output)
    try:
        while (yielded := await call(threaded.advance)) is not _END:
            yield yielded
    finally:
        # Copy the context: a step may still run in the original, and a context cannot be entered twice.
        threaded.close(context.copy())


class _ThreadedGenerator:
    """A generator that runs in threads. It can be closed while a thread executes a step."""

    def __init__(self, generator: Generator[Any, Any, Any]) -> None:
        self._generator = generator
        self._lock = threading.Lock()

    def advance(self) -> Any:
        with self._lock:
            return next(self._generator, _END)

    def close(self, context: contextvars.Context) -> None:
        """Start a thread that closes the generator after the current step. Do not wait for the thread."""
        if inspect.getgeneratorstate(self._generator) != inspect.GEN_CLOSED:
            # Use a daemon thread: a step that never ends must not keep the process alive.
            threading.Thread(target=context.run, args=(self._close,), daemon=True).start()

    def _close(self) -> None:
        with self._lock:
            self._generator.close()
