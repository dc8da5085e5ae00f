"""The service over RabbitMQ: uploads, media, model calls and messages finish although processes are killed."""

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest
import requests

from shared.messaging.broker import Broker
from shared.messaging.publisher import create_celery
from shared.messaging.queues import MODELS, UPLOADS
from tests.journeys.conftest import assert_nothing_left_over
from tests.journeys.models.asking import TIMEOUT_SECONDS, ask, scripted
from tests.support.agents.rest_clients import Client, exchange_token
from tests.support.data.inventory import query, request_sweeps
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import MediaSource, content
from tests.support.models.model_service import ModelService, model_service
from tests.support.models.upstreams import FakeUpstream
from tests.support.processes.stack import Servers, Service, Stack, wait_until
from tests.support.servers.rabbitmq import RabbitMQ

pytestmark = pytest.mark.skipif("BROKER_JOURNEYS" not in os.environ, reason="make test-brokers takes minutes")
DEVELOPMENT = {"EGRESS_ALLOW_PRIVATE": "true", "EGRESS_ALLOW_HTTP": "true"}
SHORT = scripted(chunks=3)
LONG = scripted(chunks=2000, delay_seconds=0.02)


@pytest.fixture(scope="module")
def service(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    """Yield an installation whose jobs and calls go through RabbitMQ, with a web process."""
    servers = Servers(tmp_path_factory.mktemp("servers"))
    servers.start()
    stack = Stack(
        tmp_path_factory.mktemp("over-rabbitmq"),
        servers,
        settings=DEVELOPMENT | {"ACCESS_TOKEN_SECONDS": "86400", "MODELS_THREADS": "8"},
        broker_url=rabbitmq.new_installation_url(),
    )
    with FakeUpstream() as upstream, model_service(stack, upstream) as running:
        yield running
    stack.kill_all()
    servers.stop()


@pytest.fixture(scope="module")
def agent(service: ModelService) -> Client:
    return Client(service.front.url, exchange_token(service.front.url, service.credentials))


@pytest.fixture(autouse=True)
def _books_agree(service: ModelService) -> Iterator[None]:
    yield
    service.sweep()
    assert service.disagreements() == []


@contextmanager
def running(service: ModelService, *names: str) -> Iterator[list[Service]]:
    """Run these workers within the block; they are ready when it begins."""
    workers = [service.stack.worker(name) for name in names]
    with service.stack.running(*workers):
        for worker in workers:
            wait_until(lambda worker=worker: worker.has_logged(" ready."), "the worker is ready")  # type: ignore[misc]
        yield workers


def depth(service: ModelService, *queues: str) -> int:
    with closing(Broker.of(service.stack.broker_url)) as broker:
        return sum(broker.depth(queue) for queue in queues)


def states(service: ModelService) -> set[str]:
    return {row[0] for row in query(service.stack, "SELECT DISTINCT state FROM blobs")}


def test_upload_of_a_dead_worker_goes_to_another_at_once(service: ModelService, agent: Client) -> None:
    doomed = service.stack.worker("files", FAULTS="placement.claimed")
    with service.stack.running(doomed):
        wait_until(lambda: doomed.has_logged(" ready."), "the worker is ready")
        file = agent.upload(b"over RabbitMQ", operation=uuid4()).json()
        assert doomed.wait_for_end() == -signal.SIGKILL
    with running(service, "files", "background"):
        assert_nothing_left_over(service.stack)
    assert agent.download(file["id"]).content == b"over RabbitMQ"


def test_uploads_are_placed_although_the_broker_dies_under_running_workers(
    service: ModelService, agent: Client, rabbitmq: RabbitMQ
) -> None:
    with running(service, "files", "background") as workers:
        with ThreadPoolExecutor(8) as pool:
            uploads = [pool.submit(agent.upload, b"%d" % at, operation=uuid4()) for at in range(60)]
            rabbitmq.kill()
            answers = [at.result() for at in uploads]
        assert {answer.status_code for answer in answers} == {201}, "no upload waits for the broker"
        rabbitmq.start_again()
        wait_until(lambda: is_taken(service), "workers take messages again")
        assert_nothing_left_over(service.stack)
        assert all(worker.is_running for worker in workers)
    assert states(service) == {"live"}


def is_taken(service: ModelService) -> bool:
    request_sweeps(service.stack)
    time.sleep(0.2)
    return depth(service, UPLOADS) == 0


def test_pushed_media_is_stored(service: ModelService) -> None:
    with MediaSource() as source, running(service, "media", "files", "background"):
        distribution = service.credentials["distribution"]
        answer = requests.post(
            f"{service.front.url}/distributions/{distribution['id']}/media",
            data=json.dumps(
                {
                    "messageId": uuid4().hex,
                    "attachmentId": "1",
                    "url": source.serve(f"/{PNG.file_name}", content(PNG.content, PNG.media_type)),
                    "fileName": PNG.file_name,
                    "mediaType": PNG.media_type,
                }
            ),
            headers={"Authorization": f"Bearer {distribution['token']}", "Content-Type": "application/json"},
            timeout=TIMEOUT_SECONDS,
        )
        assert answer.status_code == 202
        assert_nothing_left_over(service.stack)
    stored = query(service.stack, "SELECT encode(content_sha256, 'hex') FROM file_versions")
    assert (hashlib.sha256(PNG.content).hexdigest(),) in stored


def test_full_worker_holds_no_pending_calls(service: ModelService) -> None:
    with ThreadPoolExecutor(24) as pool:
        asked = [pool.submit(ask, service, scripted(chunks=20, delay_seconds=0.02)) for _ in range(24)]
        wait_until(lambda: depth(service, *MODELS) == len(asked), "all wait in the broker")
        with running(service, "models", "models"):
            assert [at.result(TIMEOUT_SECONDS).status_code for at in asked] == [200] * len(asked)
    assert depth(service, *MODELS) == 0


def test_pending_calls_of_a_killed_worker_are_made_by_another(service: ModelService) -> None:
    before = len(service.upstream.served)
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(ask, service, scripted(chunks=100, delay_seconds=0.02)) for _ in range(16)]
        wait_until(lambda: depth(service, *MODELS) == len(asked), "all wait in the broker")
        with running(service, "models") as (worker,):
            wait_until(lambda: len(service.upstream.served) - before >= 4, "some are under way")
            worker.kill()
        with running(service, "models"):
            statuses = sorted(at.result(TIMEOUT_SECONDS).status_code for at in asked)
    assert set(statuses) <= {200, 502}, "what had begun is not begun again"
    assert statuses.count(200) >= 8, "at most as many as the worker has threads had begun"
    calls = [line.call for line in service.upstream.served[before:]]
    assert len(calls) == len(set(calls))


def test_call_is_refused_while_the_broker_is_down_and_succeeds_afterwards(
    service: ModelService, rabbitmq: RabbitMQ
) -> None:
    with running(service, "models") as (worker,):
        assert ask(service, SHORT).status_code == 200
        rabbitmq.kill()
        refused = ask(service, SHORT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        rabbitmq.start_again()
        wait_until(lambda: ask(service, SHORT).status_code == 200, "calls are made again")
        assert worker.is_running


def test_call_does_not_wait_for_a_broker_in_alarm(service: ModelService, rabbitmq: RabbitMQ) -> None:
    with rabbitmq.in_alarm():
        asked = threading.Thread(target=ask, args=(service, SHORT), daemon=True)
        asked.start()
        asked.join(TIMEOUT_SECONDS)
        assert not asked.is_alive()
    with running(service, "models"):
        wait_until(lambda: ask(service, SHORT).status_code == 200, "calls are made again")


def test_terminating_worker_leaves_pending_calls_to_others(service: ModelService) -> None:
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(ask, service, scripted(chunks=50, delay_seconds=0.02)) for _ in range(16)]
        wait_until(lambda: depth(service, *MODELS) == len(asked), "all wait in the broker")
        with running(service, "models") as (worker,):
            wait_until(lambda: depth(service, *MODELS) < len(asked), "some are taken")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait_for_end() == 0
        with running(service, "models"):
            assert [at.result(TIMEOUT_SECONDS).status_code for at in asked] == [200] * len(asked)


def test_message_to_an_agent_receives_a_reply(service: ModelService) -> None:
    with running(service, "agents", "models", "files"):
        body: dict[str, Any] = {
            "message": {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
        }
        answer = requests.post(
            f"{service.front.url}/message:send",
            json=body,
            headers={"Authorization": f"Bearer {service.api_key}", "A2A-Version": "1.0"},
            timeout=TIMEOUT_SECONDS,
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_inspect_and_revoke_reach_workers_over_rabbitmq(service: ModelService) -> None:
    active: list[Any] = []
    with (
        closing(create_celery(service.stack.broker_url)) as app,
        running(service, "models"),
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(ask, service, LONG)
        inspect = app.control.inspect(timeout=2.0)

        def is_active() -> bool:
            # The pool holds a connection from before the broker was killed.
            with suppress(ConnectionError):
                active[:] = [call for calls in (inspect.active() or {}).values() for call in calls]
            return bool(active)

        wait_until(is_active, "the call is under way")
        app.control.revoke(active[0]["id"], terminate=True)
        assert asked.result(TIMEOUT_SECONDS).status_code >= 400
