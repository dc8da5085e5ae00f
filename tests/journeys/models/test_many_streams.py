"""Five hundred streams that wait for slow models in one web process and two workers; short requests go on."""

from __future__ import annotations

import contextlib
import os

import psutil

from tests.journeys.models.asking import ask, listening
from tests.journeys.models.conftest import running_worker
from tests.support.model_service import ModelService
from tests.support.stack import free_port

STREAMS = 500
MOST_MEMORY_BYTES = 150 << 20


def resident_bytes(pid: int) -> int:
    """Memory of a process and its children, what they share counted once."""
    process = psutil.Process(pid)
    return sum(at.memory_full_info().pss for at in [process, *process.children(recursive=True)])


def test_five_hundred_idle_streams_fit_one_web_process(service: ModelService) -> None:
    before = count_cancelled(service)
    front = service.stack.web(
        port=free_port(), WEB_THREADS=str(4 * STREAMS), PATIENCE="whole", CONCURRENT_SMALL_BODIES="200"
    )
    with (
        service.stack.running(front),
        running_worker(service) as worker,
        running_worker(service),
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


def count_cancelled(service: ModelService) -> int:
    return len(service.records("model = 'scripted/echo' AND status = 'cancelled'"))
