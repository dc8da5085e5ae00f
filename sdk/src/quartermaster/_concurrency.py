"""What differs between threads and tasks: the async source names the left ones, the sync one the right ones."""

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

# A piece costs the async form two changes of thread.
ASYNC_PIECE_BYTES = 1 << 20
PIECE_BYTES = 256 << 10


async def async_sleep(seconds: float) -> None:
    """Pause this task."""
    await anyio.sleep(seconds)


def sleep(seconds: float) -> None:
    """Pause this thread."""
    time.sleep(seconds)


async def async_call(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Call a function that waits for the disk, in a thread."""
    return await anyio.to_thread.run_sync(lambda: function(*args, **kwargs))


def call(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Call a function."""
    return function(*args, **kwargs)


async def async_pieces(source: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Give the pieces of a source; what an ordinary one waits for holds up no other task."""
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield piece
        return
    rest = iter(source)

    def find_next() -> bytes | None:
        return next(rest, None)

    while (found := await async_call(find_next)) is not None:
        yield found


def pieces(source: Iterable[bytes]) -> Iterator[bytes]:
    """Give the pieces of a source."""
    yield from source
