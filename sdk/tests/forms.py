"""One interface to both halves of the client, so that each test covers both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any

import anyio.from_thread
import pytest
from anyio.from_thread import BlockingPortal

import quartermaster

FORMS = ("sync", "async")
Connect = Callable[..., Any]


class Blocking:
    """Wraps an asynchronous object: its methods block, and return asynchronous iterators as lists."""

    def __init__(self, portal: BlockingPortal, target: Any) -> None:
        self._portal = portal
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if callable(found):
            return lambda *arguments, **options: self._portal.call(
                _finish, partial(found, *arguments, **options)
            )
        # `client.files` and the like are objects of the SDK too; their methods must block as well.
        return Blocking(self._portal, found) if type(found).__module__.startswith("quartermaster.") else found


async def _finish(call: Callable[[], Any]) -> Any:
    result = call()
    if isinstance(result, AsyncIterator):
        return [at async for at in result]
    return await result if isawaitable(result) else result


@contextmanager
def connecting(form: str) -> Iterator[Connect]:
    """Yield a factory of clients of one half; they are closed after the block."""
    clients: list[Any] = []
    with anyio.from_thread.start_blocking_portal() as portal:

        def connect(**options: Any) -> Any:
            if form == "sync":
                clients.append(quartermaster.Client(**options))
            else:
                clients.append(Blocking(portal, portal.call(partial(quartermaster.AsyncClient, **options))))
            return clients[-1]

        yield connect
        for client in clients:
            client.close() if form == "sync" else client.aclose()


@pytest.fixture(params=FORMS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Yield a factory of clients, once for each half."""
    with connecting(request.param) as connect:
        yield connect
