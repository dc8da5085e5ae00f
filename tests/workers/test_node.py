"""The Celery node of a worker: a unique name, operators' flags, events on request, and a soft shutdown."""

import os
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.apps import worker as celery_worker
from celery.platforms import EX_FAILURE
from celery.worker import state
from celery.worker.consumer import Consumer
from click.testing import CliRunner

from deploy import process_types
from deploy.cli import main
from deploy.process_types import worker_command
from workers import node
from workers.node import LeanConsumer, Node, kind_of, unique_name


def test_two_workers_of_a_kind_have_two_names_on_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    for process_id in (1, 2):
        monkeypatch.setattr(os, "getpid", lambda process_id=process_id: process_id)
        names.add(unique_name("files@host"))
    assert names == {"files-1@host", "files-2@host"}
    assert {kind_of(name) for name in names} == {"files"}


def test_a_name_that_an_operator_chose_stays() -> None:
    assert unique_name("left@host") == "left@host"
    assert kind_of("left@host") == "left"


def test_flags_after_the_dash_reach_celery_last(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(process_types, "become", became.append)
    CliRunner().invoke(main.worker, ["files", "--", "--loglevel", "DEBUG", "-E"], catch_exceptions=False)
    assert became[0][-3:] == ["--loglevel", "DEBUG", "-E"]
    CliRunner().invoke(main.celery, ["inspect", "active", "--json"], catch_exceptions=False)
    assert became[1][-3:] == ["inspect", "active", "--json"]


@pytest.mark.parametrize("value", ["true", "1"])
def test_a_setting_has_workers_tell_of_their_tasks_and_that_they_live(value: str) -> None:
    told, untold = worker_command("files", {"TASK_EVENTS": value}), worker_command("files", {})
    assert "--task-events" in told
    assert "--without-heartbeat" not in told
    assert "--task-events" not in untold
    assert "--without-heartbeat" in untold


def test_a_soft_shutdown_ends_with_the_last_job(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: set[Any] = {"a job"}
    monkeypatch.setattr(state, "active_requests", jobs)
    monkeypatch.setattr(node, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: jobs.clear()))
    conf = SimpleNamespace(worker_soft_shutdown_timeout=3600)
    waiting: Any = SimpleNamespace(app=SimpleNamespace(conf=conf))
    Node.wait_for_soft_shutdown(waiting)
    assert not jobs
    Node.wait_for_soft_shutdown(waiting)


def test_a_soft_shutdown_has_an_end_for_jobs_that_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "active_requests", {"a job"})
    conf = SimpleNamespace(worker_soft_shutdown_timeout=0.05)
    waiting: Any = SimpleNamespace(app=SimpleNamespace(conf=conf))
    Node.wait_for_soft_shutdown(waiting)
    assert state.active_requests


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore signal handlers, and the requests that they make to Celery."""
    monkeypatch.setattr(state, "should_stop", None)
    monkeypatch.setattr(state, "should_terminate", None)
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("sent", [[signal.SIGQUIT], [signal.SIGINT, signal.SIGINT]])
def test_a_signal_waits_for_nothing_where_it_interrupts(sent: list[signal.Signals]) -> None:
    worker: Any = Node.__new__(Node)
    worker.app, worker.hostname, worker._isatty = SimpleNamespace(IS_macOS=False), "files@host", False
    worker.wait_for_soft_shutdown = lambda: pytest.fail("it waits in the handler")
    worker.install_platform_tweaks(worker)
    for number in sent:
        assert state.should_terminate is None
        os.kill(os.getpid(), number)
    assert state.should_terminate == EX_FAILURE


@pytest.mark.usefixtures("handlers")
def test_the_loop_that_was_asked_to_stop_softly_does(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(
        celery_worker, "on_cold_shutdown", lambda worker: done.append((worker, state.should_terminate))
    )
    monkeypatch.setattr(celery_worker.Worker, "terminate", lambda *_: done.append("terminated"))
    worker: Any = Node.__new__(Node)
    monkeypatch.setattr(state, "should_terminate", EX_FAILURE)
    worker.terminate()
    assert done == [(worker, None), "terminated"]


def test_no_queues_are_declared_for_messages_with_an_eta() -> None:
    steps = [str(step) for step in Consumer.Blueprint.default_steps]
    ours = [str(step) for step in LeanConsumer.Blueprint.default_steps]
    assert [step for step in steps if step not in ours] == [
        "celery.worker.consumer.delayed_delivery:DelayedDelivery"
    ]
