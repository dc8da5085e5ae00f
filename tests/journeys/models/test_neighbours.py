"""Slow streams of one organization on a worker with few slots: all organizations' short calls are still served."""

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
import requests

from shared.models.concurrency_limits import KEY as ANNOUNCED
from shared.models.concurrency_limits import SNAPSHOT_SECONDS, read_slots
from tests.journeys.models.asking import TIMEOUT_SECONDS, ask, body_of, listening, scripted
from tests.journeys.models.conftest import running_worker
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import wait_until

SLOTS = 16
ALONE = SLOTS * 7 // 16
"""What one organization may have open at once while there are no others."""
ENDLESS = scripted(chunks=10_000, delay_seconds=0.05)


@pytest.fixture
def neighbour(service: ModelService) -> str:
    """Return the key of another organization, which has credits."""
    organization_id = service.identity.organization("Neighbour").id
    service.give_credits(organization_id, 1_000_000)
    return service.identity.person(organization_id, bound=True).api_key


@pytest.fixture(autouse=True)
def _small_worker(service: ModelService) -> Iterator[None]:
    with running_worker(service, MODELS_THREADS=str(SLOTS)):
        with redis.Redis.from_url(service.stack.models_redis_url) as valkey:
            valkey.delete(ANNOUNCED)  # Workers of earlier journeys, which were killed, announced these.
            wait_until(lambda: read_slots(valkey) == SLOTS, "the worker is known")
        time.sleep(2 * SNAPSHOT_SECONDS)
        yield
        service.wait_until_settled()


def ask_with(
    service: ModelService, key: str, text: str, *, model: str = "fake/chat", stream: bool = False
) -> requests.Response:
    return requests.post(
        f"{service.front.url}/v1/chat/completions",
        json=body_of(text, model=model, stream=stream),
        headers={"Authorization": f"Bearer {key}"},
        timeout=TIMEOUT_SECONDS,
        stream=stream,
    )


def test_slow_streams_of_one_organization_leave_room_for_another(
    service: ModelService, neighbour: str
) -> None:
    with contextlib.ExitStack() as streams:
        for _ in range(ALONE):
            streams.enter_context(listening(service, ENDLESS)).read_until("abc")
        with ThreadPoolExecutor(SLOTS) as pool:
            beyond = [
                pool.submit(ask_with, service, service.api_key, ENDLESS, stream=True) for _ in range(SLOTS)
            ]
            for model in ("fake/chat", "scripted/echo"):
                for _ in range(3):
                    assert ask_with(service, neighbour, "hello", model=model).status_code == 200
        answers = [streams.enter_context(at.result()) for at in beyond]
        refused = [answer for answer in answers if answer.status_code != 200]
        # A web process's view of other processes may be 0.25 seconds old.
        assert len(refused) >= SLOTS - 3
        for answer in refused:
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "concurrency_limit")
            assert int(answer.headers["Retry-After"]) >= 1


def test_many_quick_calls_of_one_organization_queue_fairly(service: ModelService) -> None:
    with ThreadPoolExecutor(80) as pool:
        answers = list(pool.map(lambda _: ask(service, scripted(chunks=2, delay_seconds=0.02)), range(80)))
    assert {answer.status_code for answer in answers} == {200}


def test_continuous_streams_leave_another_organization_a_slot_at_a_limited_model(
    service: ModelService, neighbour: str
) -> None:
    short = scripted(chunks=5, delay_seconds=0.02)
    is_over = threading.Event()

    def never_rest() -> None:
        while not is_over.is_set():
            ask_with(service, service.api_key, short, model="fake/narrow", stream=True).content  # noqa: B018 (read to its end)

    with ThreadPoolExecutor(6) as pool:
        crowd = [pool.submit(never_rest) for _ in range(6)]
        answers = [ask_with(service, neighbour, "hello", model="fake/narrow") for _ in range(4)]
        is_over.set()
        for at in crowd:
            at.result()
    assert [answer.status_code for answer in answers] == [200] * 4
