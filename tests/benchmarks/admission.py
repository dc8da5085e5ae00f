"""The cost of fair sharing for a request: its slots are taken, moved and released, alone and in a short request.

Measured as CPU time of one thread in this process, without contention: every call pays this.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

from werkzeug.test import EnvironBuilder, run_wsgi_app

from shared.config.settings import Settings
from shared.fairness.admission import PoolKey, anonymous_key
from tests.benchmarks.runner.product import Bench
from tests.benchmarks.runner.report import Line
from tests.support.data.identity import make_settings
from web.app import create_app
from web.dependencies.pools import Pools, build_pools
from web.framework import routes
from web.http.slots import ADMISSION, Admission

MOST_MILLISECONDS = 0.1
ROUNDS = 3
REQUEST_ROUNDS = 9
"""Measured in turn: the difference is only a tenth of each figure."""


def admission(bench: Bench) -> Iterator[Line]:
    """Measure a call's slots among few and many tenants, and a request with and without slots."""
    count = 4_000 if bench.quick else 20_000
    settings = make_settings(log_level="ERROR")
    for tenants in (1, 1_000):
        yield _verdict(f"slots of a model call, {tenants} tenants", _call_seconds(settings, tenants, count))
    yield _verdict("slots of a download by link, moved to its organization", _moved_seconds(settings, count))
    within, without = _request_seconds(bench.directory, count // 4)
    yield _verdict(
        "a short request with slots, less one without",
        within - without,
        f"{within * 1000:.3f} less {without * 1000:.3f} ms",
    )


def _verdict(what: str, seconds: float, yardstick: str = "") -> Line:
    milliseconds = seconds * 1000
    return Line(
        what=what,
        figure=f"{milliseconds:.4f} ms",
        yardstick=yardstick,
        target=f"≤ {MOST_MILLISECONDS} ms",
        met=milliseconds <= MOST_MILLISECONDS,
    )


def _call_seconds(settings: Settings, tenants: int, count: int) -> float:
    pools = build_pools(settings)
    with ExitStack() as others:
        for _ in range(min(tenants, pools.requests.slots) - 1):
            others.enter_context(pools.requests.acquire(PoolKey(uuid4(), None)))
        for _ in range(tenants - 1):
            others.enter_context(pools.model_calls.acquire(PoolKey(uuid4(), None)))
        return _seconds_each(lambda key: _answer_call(pools, PoolKey(key, key)), count)


def _answer_call(pools: Pools, key: PoolKey) -> None:
    admission = Admission(key, pools.requests.acquire(key))
    admission.hold(pools.model_calls)
    admission.end()


def _moved_seconds(settings: Settings, count: int) -> float:
    pools = build_pools(settings)

    def answer(organization_id: UUID) -> None:
        key = anonymous_key("192.0.2.1")
        admission = Admission(key, pools.requests.acquire(key))
        admission.move(PoolKey(organization_id, organization_id))
        admission.hold(pools.downloads)
        admission.end()

    return _seconds_each(answer, count)


def _seconds_each(act: Callable[[UUID], None], count: int) -> float:
    key = uuid4()

    def once() -> float:
        began = time.thread_time()
        for _ in range(count):
            act(key)
        return (time.thread_time() - began) / count

    return statistics.median(once() for _ in range(ROUNDS))


def _request_seconds(directory: Path, count: int) -> tuple[float, float]:
    """Measure a request without a query, with and without slots, in turn."""
    app: Any = create_app(make_settings(blob_store=directory.as_uri(), log_level="ERROR")).wsgi_app
    environ = EnvironBuilder(
        "/.well-known/oauth-authorization-server", environ_overrides={"REMOTE_ADDR": "192.0.2.1"}
    ).get_environ()

    def ask() -> None:
        sent = {name: value for name, value in environ.items() if name != ADMISSION}
        run_wsgi_app(app, sent, buffered=True)

    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(REQUEST_ROUNDS):
        taken[0].append(_seconds_each(lambda _: ask(), count))
        with patch.object(routes, "admit", lambda *_: Admission(anonymous_key("192.0.2.1"))):
            taken[1].append(_seconds_each(lambda _: ask(), count))
    return statistics.median(taken[0]), statistics.median(taken[1])
