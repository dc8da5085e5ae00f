"""The publisher: few messages for many jobs, no request that waits for the broker, and counted losses."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import redis
from celery import Celery

import shared.messaging.broker
from deploy.embedded.valkey import EmbeddedValkey
from shared.files.lifecycle.garbage_collection import CollectGarbage
from shared.files.lifecycle.placement import PlaceAwaited, PlaceStaged
from shared.messaging.broker import ValkeyBroker
from shared.messaging.publisher import PENDING_LIMIT, Publisher, create_celery
from shared.messaging.valkey import connect_valkey
from shared.observability.telemetry import PUBLISH_FAILURES
from tests.support.processes.stack import PATIENCE_SECONDS, free_port, wait_until

LONGEST_HANDOVER_SECONDS = 4.5
"""Who waited for a broker that does not answer would wait five seconds, once at the least."""


@pytest.fixture
def broker_url(valkey_server: EmbeddedValkey) -> str:
    """A database without other publishers: web processes of other tests may still have messages to send."""
    return valkey_server.url.rpartition("/")[0] + "/12"


@pytest.fixture
def broker(broker_url: str) -> Iterator[redis.Redis]:
    """An empty broker."""
    with redis.Redis.from_url(broker_url) as client:
        client.flushdb()
        yield client


@pytest.fixture(autouse=True)
def _patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengthen the publisher's timeout, because it drops a job that a broker does not accept within seconds."""
    if "broker" in request.fixturenames:
        patient = partial(connect_valkey, timeout_seconds=PATIENCE_SECONDS)
        monkeypatch.setattr(shared.messaging.broker, "connect_valkey", patient)
        options = ValkeyBroker.options.fget  # type: ignore[attr-defined]
        monkeypatch.setattr(
            ValkeyBroker,
            "options",
            property(lambda broker: options(broker) | {"socket_timeout": PATIENCE_SECONDS}),
        )


@contextmanager
def application(url: str) -> Iterator[Celery]:
    app = create_celery(url)
    yield app
    app.close()


def waiting(broker: redis.Redis, queue: str) -> int:
    length = broker.llen(f"quartermaster:{queue}")
    assert isinstance(length, int)
    return length


def failures() -> float:
    value: float = PUBLISH_FAILURES._value.get()
    return value


def hand_over(publisher: Publisher, times: int) -> float:
    """Publish this number of jobs. Return the time that it took in seconds."""
    began = time.monotonic()
    for _ in range(times):
        publisher.publish([PlaceStaged()])
    return time.monotonic() - began


def test_equal_jobs_in_a_burst_leave_as_few_messages(broker: redis.Redis, broker_url: str) -> None:
    with application(broker_url) as app:
        publisher = Publisher(app)
        publisher.publish([PlaceStaged()] * 500 + [CollectGarbage()] * 500)
        wait_until(lambda: waiting(broker, "uploads") and waiting(broker, "retention"), "both are sent")
        assert (waiting(broker, "uploads"), waiting(broker, "retention")) == (1, 1)


def test_a_job_that_comes_after_a_burst_is_sent_too(broker: redis.Redis, broker_url: str) -> None:
    with application(broker_url) as app:
        publisher = Publisher(app)
        publisher.publish([PlaceAwaited()])
        wait_until(lambda: waiting(broker, "uploads") == 1, "the first is sent")
        publisher.publish([PlaceAwaited()])
        wait_until(lambda: waiting(broker, "uploads") == 2, "the second is sent")


def test_jobs_of_a_class_with_a_spacing_are_gathered_and_hold_up_no_others(
    broker: redis.Redis, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlaceStaged, "spacing_seconds", 3600.0)
    with application(broker_url) as app:
        publisher = Publisher(app)
        publisher.publish([PlaceStaged()])
        wait_until(lambda: waiting(broker, "uploads") == 1, "the first is sent")
        publisher.publish([PlaceStaged(), CollectGarbage()])
        wait_until(lambda: waiting(broker, "retention") == 1, "the other is sent")
        assert waiting(broker, "uploads") == 1
        publisher._spaced_until.clear()  # an hour later
        wait_until(lambda: waiting(broker, "uploads") == 2, "the second is sent")


def test_publisher_does_not_wait_for_a_down_broker_and_counts_losses() -> None:
    before = failures()
    with application(f"redis://127.0.0.1:{free_port()}/0") as app:
        assert hand_over(Publisher(app), 1000) < LONGEST_HANDOVER_SECONDS
        wait_until(lambda: failures() > before, "the loss is counted")


def test_publisher_does_not_wait_for_an_unresponsive_broker() -> None:
    before = failures()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        application(f"redis://127.0.0.1:{listener.getsockname()[1]}/0") as app,
    ):
        assert hand_over(Publisher(app), 1000) < LONGEST_HANDOVER_SECONDS
        wait_until(lambda: failures() > before, "the loss is counted")


def test_publishing_goes_on_when_the_broker_is_back(valkey_server: EmbeddedValkey, broker_url: str) -> None:
    with application(broker_url) as app:
        publisher = Publisher(app)
        publisher.publish([PlaceAwaited()])
        valkey_server.kill()
        before = failures()
        publisher.publish([PlaceAwaited()])
        wait_until(lambda: failures() > before, "the loss is counted")
        valkey_server.start(discards_data=True)
        with redis.Redis.from_url(broker_url) as broker:
            publisher.publish([CollectGarbage()])
            wait_until(lambda: waiting(broker, "retention") == 1, "the next job is sent")


def test_unpublished_jobs_are_bounded_and_drops_are_counted() -> None:
    with application("redis://127.0.0.1:1/0") as app:
        publisher = Publisher(app)
        publisher._thread.stop()  # nobody takes anything
        publisher._pending = dict.fromkeys(range(PENDING_LIMIT))  # type: ignore[arg-type]
        before = failures()
        publisher.publish([PlaceStaged(), CollectGarbage()])
        assert failures() == before + 2
        assert len(publisher._pending) == PENDING_LIMIT


def test_hints_that_no_worker_takes_do_not_fill_the_broker(
    broker: redis.Redis, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared.messaging.broker, "JOB_MESSAGES_LIMIT", 3)
    before = failures()
    with application(broker_url) as app:
        publisher = Publisher(app)
        for _ in range(10):
            publisher.publish([PlaceAwaited()])
            wait_until(lambda: not publisher._pending, "it is sent or dropped")
        wait_until(lambda: failures() > before, "a hint too many is counted")
        assert waiting(broker, "uploads") == 3
