"""A thread that acts again and again: begun when needed, woken early, ended on request, never by a failure."""

import threading
from pathlib import Path

from shared.errors import ServiceUnavailable
from shared.runtime.periodic_thread import PeriodicThread

PATIENCE_SECONDS = 90.0
LONG_SECONDS = 600.0


def test_it_acts_at_once_and_again_after_each_pause() -> None:
    done = threading.Semaphore(0)
    thread = PeriodicThread(done.release, name="test", pause_seconds=0.001)
    thread.start()
    thread.start()
    for _ in range(3):
        assert done.acquire(timeout=PATIENCE_SECONDS)
    thread.stop(wait=True)


def test_nothing_runs_before_it_is_started() -> None:
    before = threading.active_count()
    thread = PeriodicThread(lambda: None, name="test", pause_seconds=LONG_SECONDS)
    assert threading.active_count() == before
    thread.stop(wait=True)
    thread.start()
    assert threading.active_count() == before


def test_a_failure_is_outlived() -> None:
    failures: list[Exception] = [ServiceUnavailable("away"), ValueError("wrong")]
    done = threading.Event()

    def act() -> None:
        if failures:
            raise failures.pop(0)
        done.set()

    thread = PeriodicThread(act, name="test", pause_seconds=LONG_SECONDS, pause_after_failure_seconds=0.001)
    thread.start()
    assert done.wait(PATIENCE_SECONDS)
    thread.stop(wait=True)


def test_it_sleeps_while_there_is_no_work_and_is_woken_for_it() -> None:
    pending: list[int] = []
    handled: list[int] = []
    done = threading.Semaphore(0)

    def act() -> None:
        handled.append(pending.pop())
        done.release()

    thread = PeriodicThread(act, name="test", pause_seconds=0.0, has_work=lambda: pending)
    thread.start()
    for number in (1, 2):
        pending.append(number)
        thread.wake()
        assert done.acquire(timeout=PATIENCE_SECONDS)
    thread.stop(wait=True)
    assert handled == [1, 2]


def test_it_may_begin_with_a_pause_that_a_stop_ends() -> None:
    acted: list[int] = []
    thread = PeriodicThread(
        lambda: acted.append(1), name="test", pause_seconds=LONG_SECONDS, starts_with_pause=True
    )
    thread.start()
    thread.stop(wait=True)
    assert thread.is_stopping
    assert acted == []


def test_a_thread_that_waits_for_work_ends_when_it_is_stopped() -> None:
    thread = PeriodicThread(lambda: None, name="test", pause_seconds=0.0, has_work=lambda: False)
    thread.start()
    thread.stop(wait=True)


def test_threads_are_made_here_or_for_a_reason_of_their_own() -> None:
    root = Path(__file__).parents[3]
    making = {
        path.relative_to(root).as_posix()
        for folder in ("web", "workers", "shared", "deploy")
        for path in (root / folder).rglob("*.py")
        if "threading.Thread(" in path.read_text()
    }
    assert making == {
        "shared/runtime/periodic_thread.py",
        "web/server/response_writer.py",  # sleeps in a selector
        "shared/egress/connections.py",  # a lookup that nothing can interrupt
        "shared/observability/multiprocess_metrics.py",  # below what this module rests on
        "shared/operations/operations_port.py",  # accepts and converses
        "shared/operations/health_checks.py",  # one for each check
        "workers/consumers.py",
    }
