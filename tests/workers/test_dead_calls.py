"""Open calls of a dead process are settled or released in time by the schedule alone."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from shared.db.database import Database
from shared.messaging.queues import LEDGER
from tests.shared.credits.calls import Calls
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.processes.bound_worker import BoundWorker, bound_worker
from workers.schedule import build_schedule

PROMISED_SECONDS = 120


@pytest.fixture
def worker(database_url: str) -> Iterator[BoundWorker]:
    with bound_worker(
        make_settings(database_url=database_url), [LEDGER], broker_url="redis://127.0.0.1:9"
    ) as worker:
        yield worker


def test_calls_of_the_dead_are_settled_or_given_back_within_two_minutes(
    worker: BoundWorker, database: Database
) -> None:
    calls = Calls(database, IdentityFactory(database, make_settings()).organization().id)
    calls.top_up(100)
    waiting = calls.hold(10)
    said_something, token = calls.dispatched(50, prompt_tokens=3)
    calls.note_streamed(said_something, token, 4)
    said_nothing, _ = calls.dispatched(40)
    kinds = ("credits.release_overdue_holds", "credits.settle_unresolved")
    schedule = build_schedule()
    # Each sweep may have run just before there was something to find.
    late = sum((timedelta(seconds=schedule[kind]["schedule"]) for kind in kinds), timedelta())
    passed = timedelta(seconds=PROMISED_SECONDS) - late
    calls.run(
        "UPDATE invocations SET lease_until = lease_until - CAST(:passed AS interval) WHERE organization_id = :id",
        passed=passed,
        id=calls.organization_id,
    )
    for kind in kinds:
        worker.run(kind)
    assert [calls.state(at) for at in (waiting, said_something, said_nothing)] == [
        "expired",
        "settled",
        "settled",
    ]
    assert (calls.balance.balance, calls.balance.held) == (93, 0)
    assert calls.settle(said_something, token, 5).balance == 95, "a later report corrects it"
    assert calls.settle(said_something, token, 9).balance == 95, "once"
    assert calls.discrepancies() == []
