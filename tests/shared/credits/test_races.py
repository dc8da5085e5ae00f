"""Many threads on one organization: races that `test_interleavings.py`, with one thread, cannot show."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from shared.credits.errors import InsufficientCredits, ReferenceConflict
from shared.credits.settlement import Effect
from shared.credits.sweeps import mark_unresolved, release_overdue_holds, settle_unresolved
from shared.credits.usage.rollups import roll_up_usage
from tests.shared.credits.calls import Calls

THREADS = 16
AFFORDABLE = 100


def run_concurrently(act: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """Run an action in several threads that start at the same time; return the results."""
    barrier = threading.Barrier(count)

    def start(number: int) -> Any:
        barrier.wait()
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


def test_exactly_as_many_calls_are_admitted_as_are_affordable(calls: Calls) -> None:
    calls.top_up(AFFORDABLE * 10)

    def admit(_: int) -> int:
        admitted = 0
        while True:
            try:
                calls.hold(10)
            except InsufficientCredits:
                return admitted
            admitted += 1

    assert sum(run_concurrently(admit)) == AFFORDABLE
    assert (calls.balance.held, calls.balance.available) == (AFFORDABLE * 10, 0)
    assert calls.discrepancies() == []


def test_calls_that_run_at_once_are_each_charged_once(calls: Calls) -> None:
    calls.top_up(100_000)

    def run(number: int) -> int:
        return sum(calls.charge(number + 1).cost for _ in range(20))

    charged = sum(run_concurrently(run))
    assert charged == 20 * sum(range(1, THREADS + 1))
    assert (calls.balance.balance, calls.balance.held) == (100_000 - charged, 0)
    assert calls.discrepancies() == []


def test_concurrent_dispatches_succeed_once(calls: Calls) -> None:
    calls.top_up(100)
    invocation_id = calls.hold(10)
    assert sum(taken is not None for taken in run_concurrently(lambda _: calls.dispatch(invocation_id))) == 1


def test_concurrent_settlements_charge_once(calls: Calls) -> None:
    calls.top_up(100)
    invocation_id, token = calls.dispatched(10)
    settled = run_concurrently(lambda number: calls.settle(invocation_id, token, number))
    assert Counter(at.effect for at in settled) == {Effect.SETTLED: 1, Effect.REPEATED: THREADS - 1}
    assert len({at.cost for at in settled}) == 1
    assert calls.discrepancies() == []


def test_concurrent_top_ups_with_one_reference_enter_once(calls: Calls) -> None:
    entered = run_concurrently(lambda _: calls.top_up(7, "once").is_replayed)
    assert sorted(entered) == [False] + [True] * (THREADS - 1)
    assert calls.balance.balance == 7


def test_conflicting_top_ups_enter_exactly_one_amount(calls: Calls) -> None:
    def enter(number: int) -> bool:
        try:
            calls.top_up(number % 2 + 1, "contested")
        except ReferenceConflict:
            return False
        return True

    assert sum(run_concurrently(enter)) == THREADS // 2
    assert calls.balance.version == 1


def test_a_settlement_and_the_sweeps_agree_on_every_call(calls: Calls) -> None:
    calls.top_up(1000)
    dispatched = [calls.dispatched(10, prompt_tokens=3) for _ in range(THREADS // 2)]
    waiting = [calls.hold(10) for _ in range(THREADS // 2)]
    for invocation_id in (*waiting, *(at[0] for at in dispatched)):
        calls.lose(invocation_id, hours=30)

    def collide(number: int) -> None:
        if number % 2:
            release_overdue_holds(calls.database)
            mark_unresolved(calls.database)
            settle_unresolved(calls.database)
            roll_up_usage(calls.database)
        else:
            calls.settle(*dispatched[number // 2], 5)
            calls.void(waiting[number // 2])

    run_concurrently(collide)
    assert {calls.state(at[0]) for at in dispatched} == {"settled"}
    assert {calls.state(at) for at in waiting} <= {"voided", "expired"}
    # Whichever was first, the provider's word stands in the end: as the charge, or as its correction.
    assert (calls.balance.balance, calls.balance.held) == (1000 - 5 * len(dispatched), 0)
    assert calls.discrepancies() == []
