"""Five hundred streams that wait for slow models, in one web process and two workers; short requests continue."""

import contextlib
import os

import psutil
import requests

from tests.journeys.models.asking import ask, listening, waiting
from tests.journeys.models.conftest import running_worker
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import free_port, wait_until
from tests.web.server.trivial_front import many_files

STREAMS = 500
WAITING_STREAMS = 2000
WAITING_IN_LITTLE_MEMORY = 1000
WAVE = 50
"""Streams that are sent at once: no more than a slow machine begins within the wait for a thread."""
MOST_MEMORY_BYTES = 150 << 20
MOST_BYTES_OF_A_WAIT = 32 << 10


def resident_bytes(pid: int) -> int:
    """Return the proportional memory of a process and its children."""
    process = psutil.Process(pid)
    return sum(at.memory_full_info().pss for at in [process, *process.children(recursive=True)])


def test_five_hundred_idle_streams_fit_one_web_process(service: ModelService) -> None:
    before = count_cancelled(service)
    front = service.stack.web(port=free_port(), WEB_THREADS="16", PATIENCE="whole")
    with (
        service.stack.running(front),
        running_worker(service, MODELS_THREADS="640") as worker,
        running_worker(service, MODELS_THREADS="640"),
        contextlib.ExitStack() as streams,
    ):
        empty = resident_bytes(front.pid)
        for _ in range(STREAMS):
            prompt = "!tokens 3\n!stall after 2"
            stream = streams.enter_context(listening(service, prompt, front=front, model="scripted/echo"))
            stream.read_until("word1")
        full, working = resident_bytes(front.pid), resident_bytes(worker.pid)
        assert ask(service, "hello", front=front, model="scripted/echo").status_code == 200
        assert front.is_answering()
        print(
            f"\n{STREAMS} idle streams: front {empty >> 20} -> {full >> 20} MiB, worker {working >> 20} MiB,"
            f" {os.cpu_count()} cores"
        )
        assert full < MOST_MEMORY_BYTES
        streams.close()
        service.wait_until_settled()
    assert count_cancelled(service) == before + STREAMS


def test_streams_that_wait_for_a_worker_block_no_other_request(service: ModelService) -> None:
    front = service.stack.web(
        port=free_port(), WEB_THREADS="16", PATIENCE="endless", QUEUED_MODEL_CALLS="5000"
    )
    with (
        service.stack.running(front),
        many_files(WAITING_STREAMS + 500),
        contextlib.ExitStack() as streams,
    ):
        stranger = service.identity.person(service.identity.organization().id)
        other = {"Authorization": stranger.authorization}
        empty = resident_bytes(front.pid)
        for sent in range(WAVE, WAITING_STREAMS + 1, WAVE):
            for _ in range(WAVE):
                streams.enter_context(waiting(service, "hello", stream=True, front=front))
            wait_for_open(service, sent)
            if sent == WAITING_IN_LITTLE_MEMORY:
                half_full = resident_bytes(front.pid)
        for _ in range(10):
            assert requests.get(f"{front.url}/readyz", timeout=60).status_code == 200
            assert requests.get(f"{front.url}/admin/me", headers=other, timeout=60).status_code == 200
        full = resident_bytes(front.pid)
        print(
            f"\n{WAITING_STREAMS} waiting streams: front {empty >> 20} -> {full >> 20} MiB,"
            f" {half_full >> 20} at {WAITING_IN_LITTLE_MEMORY}"
        )
        assert half_full < MOST_MEMORY_BYTES
        assert full - empty < WAITING_STREAMS * MOST_BYTES_OF_A_WAIT
        streams.close()
        with running_worker(service):  # The worker finds these calls canceled.
            service.wait_until_settled()


def wait_for_open(service: ModelService, calls: int) -> None:
    wait_until(lambda: len(service.open_invocations()) == calls, f"{calls} calls are open")


def count_cancelled(service: ModelService) -> int:
    return len(service.records("model = 'scripted/echo' AND status = 'cancelled'"))
