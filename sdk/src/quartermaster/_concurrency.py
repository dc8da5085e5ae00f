"""Functions that exist in two variants: one for asyncio and one for threads.

The package `_async` uses the functions whose names begin with `async_`. `sdk/generate.py` replaces these names by the
names without the prefix.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

AsyncLock = anyio.Lock
Lock = threading.Lock

# Pieces are larger with asyncio, because each piece costs two switches between the event loop and a thread.
ASYNC_PIECE_BYTES = 1 << 20
PIECE_BYTES = 256 << 10


async def async_sleep(seconds: float) -> None:
    """Pause this task for some seconds."""
    await anyio.sleep(seconds)


def sleep(seconds: float) -> None:
    """Pause this thread for some seconds."""
    time.sleep(seconds)


async def async_call(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Call a function in a thread, because the function may wait for the disk."""
    return await anyio.to_thread.run_sync(lambda: function(*args, **kwargs))


def call(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Call a function in this thread."""
    return function(*args, **kwargs)


async def async_pieces(source: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of a source. Threads read a synchronous source, so that reading does not block the loop."""
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield piece
        return
    rest = iter(source)

    def find_next() -> bytes | None:
        # Return None at the end: a StopIteration cannot be raised out of a coroutine.
        return next(rest, None)

    while (found := await async_call(find_next)) is not None:
        yield found


def pieces(source: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a source."""
    yield from source
