"""What operators do with Celery's own tools: inspect a worker, revoke a call, follow events, stop a worker."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
import redis
import requests
from celery import Celery

from deploy.process_types import worker_command
from shared.ids import new_id
from shared.messaging.publisher import create_celery
from shared.messaging.queues import MODELS
from shared.messaging.replies import ReplyAddress
from shared.models.concurrency_limits import KEY as ANNOUNCED
from shared.models.concurrency_limits import SNAPSHOT_SECONDS
from shared.models.queue.call_queue import TASK, QueuedCall, key_of, parked_queue, write_message
from tests.journeys.models.asking import TIMEOUT_SECONDS, ask, scripted
from tests.journeys.models.conftest import running_worker
from tests.support.models.call_messages import KEYS, take_call, waiting_calls
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import Service, free_port, wait_until

SHORT = scripted(chunks=3)
SECONDS = scripted(chunks=100, delay_seconds=0.02)
MINUTES = scripted(chunks=2000, delay_seconds=0.05)
THREADS = 2


@pytest.fixture(scope="module")
def front(service: ModelService) -> Iterator[Service]:
    """Run a web process with the timeouts of production."""
    front = service.stack.web(port=free_port(), PATIENCE="whole")
    with service.stack.running(front):
        yield front


@pytest.fixture
def app(service: ModelService) -> Iterator[Celery]:
    """Yield the application of `celery inspect` and `celery control`."""
    with closing(create_celery(service.stack.models_redis_url)) as app:
        yield app


@pytest.fixture
def broker(service: ModelService) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(service.stack.models_redis_url) as broker:
        broker.delete(*KEYS)
        yield broker


@contextmanager
def queueing(service: ModelService, front: Service, *texts: str) -> Iterator[list[Future[requests.Response]]]:
    """Send calls while no worker is known: shares then let more calls queue than a small worker has threads."""
    with redis.Redis.from_url(service.stack.models_redis_url) as valkey:
        valkey.delete(ANNOUNCED)  # Workers of earlier tests, which were killed, announced these.
    time.sleep(2 * SNAPSHOT_SECONDS)
    with asking(service, front, *texts) as asked:
        yield asked


@contextmanager
def asking(service: ModelService, front: Service, *texts: str) -> Iterator[list[Future[requests.Response]]]:
    """Send one call after another, each once the one before is accepted."""
    with ThreadPoolExecutor(len(texts)) as pool:
        asked = []
        for text in texts:
            before = len(service.invocations())
            asked.append(pool.submit(ask, service, text, front=front))
            wait_until(lambda before=before: len(service.invocations()) > before, "the call is accepted")  # type: ignore[misc]
        yield asked


def waiting(broker: redis.Redis) -> int:
    return sum(int(broker.llen(key)) for key in KEYS)


def told_by_the_worker(look: Callable[[], dict[str, Any] | None]) -> Any:
    """Return the reply of the one worker."""
    found: dict[str, Any] = {}

    def ask_it() -> dict[str, Any]:
        found.update(look() or {})
        return found

    wait_until(ask_it, "the worker answers")
    return next(iter(found.values()))


def told_by_the_command(service: ModelService, *arguments: str) -> str:
    """Return what the command that `deploy/README.md` names prints."""
    broker = ("--broker", service.stack.models_redis_url)
    return subprocess.run(
        [sys.executable, "-m", "celery", *broker, "--app", "workers.app", *arguments],
        env=os.environ | service.stack.environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    ).stdout


def newest(service: ModelService, number: int) -> list[str]:
    return list(service.invocations())[-number:]


def test_inspect_reports_running_calls_and_the_rest_stays_in_the_broker(
    service: ModelService, front: Service, app: Celery, broker: redis.Redis
) -> None:
    with queueing(service, front, *[MINUTES] * THREADS, SHORT, SHORT) as asked:
        calls = newest(service, 4)
        assert waiting(broker) == len(calls)
        with running_worker(service, MODELS_THREADS=str(THREADS)):
            inspect = app.control.inspect(timeout=10.0, limit=1)  # The first reply ends the wait.
            wait_until(lambda: waiting(broker) == len(calls) - THREADS, "two calls are taken")
            wait_until(lambda: len(told_by_the_worker(inspect.active)) == THREADS, "both are under way")
            active = told_by_the_worker(inspect.active)
            under_way = {at["id"] for at in active}
            assert len(under_way) == THREADS
            assert under_way < set(calls)
            assert {at["name"] for at in active} == {TASK}
            assert told_by_the_worker(inspect.reserved) == [], "nothing waits in a worker's memory"
            one = active[0]["id"]
            state, _ = told_by_the_worker(lambda: inspect.query_task(one))[one]
            assert state == "active"
            assert waiting(broker) == len(calls) - THREADS
            assert one in told_by_the_command(service, "inspect", "active")
            app.control.revoke([at["id"] for at in active], terminate=True)
            assert sorted(at.result(TIMEOUT_SECONDS).status_code for at in asked)[:2] == [200, 200]
            wait_until(lambda: not told_by_the_worker(inspect.active), "nothing is under way")


def test_call_revoked_before_it_begins_is_never_made_and_is_refused(
    service: ModelService, front: Service, app: Celery, broker: redis.Redis
) -> None:
    before = len(service.upstream.served)
    with queueing(service, front, *[SECONDS] * THREADS, SHORT) as asked:
        calls = newest(service, 3)
        with running_worker(service, MODELS_THREADS=str(THREADS)):
            wait_until(lambda: waiting(broker) == 1, "one waits")
            (waits,) = waiting_calls(broker)
            revoked = str(waits.address.invocation_id)
            assert revoked in calls
            app.control.revoke(revoked)
            assert sorted(at.result(TIMEOUT_SECONDS).status_code for at in asked) == [200, 200, 503]
    assert len(service.upstream.served) == before + 2
    record = service.wait_for_record(revoked)
    assert (record["status"], record["cost"]) == ("cancelled", 0)


def test_running_call_is_stopped_by_revoke_with_terminate(
    service: ModelService, front: Service, app: Celery
) -> None:
    with running_worker(service), asking(service, front, MINUTES) as (asked,):
        call = newest(service, 1)[0]
        wait_until(lambda: service.invocations()[call] == "dispatched", "it is under way")
        app.control.revoke(call, terminate=True)
        assert service.wait_for_record(call)["status"] == "cancelled"
        assert asked.result(TIMEOUT_SECONDS).status_code >= 400


def test_worker_with_events_reports_every_call(service: ModelService, front: Service, app: Celery) -> None:
    environment = service.stack.environment
    worker = service.stack._service("worker-models", [*worker_command("models", environment), "-E"], {})
    told: list[tuple[str, str]] = []
    done = threading.Event()

    def note(event: dict[str, Any]) -> None:
        told.append((event["type"], event["uuid"]))
        if event["type"] == "task-succeeded":
            done.set()

    def follow() -> None:
        with app.connection_for_read() as connection:
            kinds = ("received", "started", "succeeded", "failed")
            receiver = app.events.Receiver(connection, handlers={f"task-{kind}": note for kind in kinds})
            for _ in receiver.itercapture(limit=None, timeout=30, wakeup=False):
                if done.is_set():
                    return

    with service.stack.running(worker):
        wait_until(lambda: worker.has_logged(" ready."), "the worker is ready")
        following = threading.Thread(target=follow)
        following.start()
        while not done.wait(0.5):
            assert ask(service, SHORT, front=front).status_code == 200
        following.join(TIMEOUT_SECONDS)
    call = next(call for kind, call in told if kind == "task-succeeded")
    assert call in service.invocations()
    assert [kind for kind, of in told if of == call][-2:] == ["task-started", "task-succeeded"]


def test_terminating_worker_leaves_pending_calls_to_others(
    service: ModelService, front: Service, broker: redis.Redis
) -> None:
    with queueing(service, front, *[SECONDS] * 8) as asked:
        with running_worker(service, MODELS_THREADS=str(THREADS)) as first:
            wait_until(lambda: waiting(broker) == 6, "two calls are taken")
            first.send_signal(signal.SIGTERM)
            assert first.wait_for_end() == 0
            assert waiting(broker) == 6, "it has taken none that it could not begin"
            assert sum(at.done() for at in asked) >= THREADS - 1
        with running_worker(service):
            assert [at.result(TIMEOUT_SECONDS).status_code for at in asked] == [200] * len(asked)
    assert not front.has_logged("invocation.returned"), "nothing was lost on the way"


def test_soft_shutdown_finishes_running_calls_and_loses_none(
    service: ModelService, front: Service, broker: redis.Redis
) -> None:
    command = worker_command("models", service.stack.environment | {"MODELS_THREADS": str(THREADS)})
    worker = service.stack._service("worker-models", [*command, "worker.soft_shutdown_timeout=3600"], {})
    with queueing(service, front, *[SECONDS] * 6) as asked:
        with service.stack.running(worker):
            wait_until(lambda: waiting(broker) == 4, "two calls are taken")
            worker.send_signal(signal.SIGQUIT)
            worker.wait_for_end()
            assert waiting(broker) == 4, "it has taken none that it could not begin"
        with running_worker(service):
            assert [at.result(TIMEOUT_SECONDS).status_code for at in asked] == [200] * len(asked)


def test_call_deferred_by_a_dead_worker_is_made_by_another(
    service: ModelService, front: Service, broker: redis.Redis
) -> None:
    with queueing(service, front, SHORT) as (asked,):
        call = take_call(broker)
        assert call is not None
        broker.lpush(key_of(parked_queue(call.provider)), write_message(call))
        with running_worker(service):
            assert asked.result(TIMEOUT_SECONDS).status_code == 200
    assert not front.has_logged("invocation.returned"), "it was read where it waited"


def test_invalid_message_is_dropped_and_calls_continue(
    service: ModelService, front: Service, broker: redis.Redis
) -> None:
    with running_worker(service) as worker:
        broker.lpush(KEYS[0], as_rubbish())
        wait_until(lambda: worker.has_logged("ignored and discarded"), "it is told")
        assert ask(service, SHORT, front=front).status_code == 200


def test_calls_queued_by_the_previous_release_are_made(
    service: ModelService, front: Service, broker: redis.Redis
) -> None:
    with queueing(service, front, SHORT, SHORT) as asked:
        assert waiting(broker) == 2
        first, second = (as_before(broker) for _ in range(2))
        broker.rpush("quartermaster:model-calls:3", first)
        broker.rpush("quartermaster:model-calls-aside:fake", second)
        broker.sadd("quartermaster:model-calls-aside", "fake")
        with running_worker(service):
            assert [at.result(TIMEOUT_SECONDS).status_code for at in asked] == [200, 200]


def as_before(broker: redis.Redis) -> bytes:
    """Take a call's message, and return it in the previous release's format."""
    call = take_call(broker)
    assert call is not None
    return call.address.invocation_id.bytes + f"{call.address.channel}\0{call.provider}".encode()


def as_rubbish() -> str:
    address = ReplyAddress(invocation_id=new_id(), channel="quartermaster:replies:x")
    message = json.loads(write_message(QueuedCall(address=address, provider="fake", queue=MODELS[0])))
    return json.dumps(message | {"body": "[]"})
