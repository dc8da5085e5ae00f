"""Clients that disconnect: the call to the upstream ends within seconds, and the text sent so far is charged."""

import threading
from typing import Any

import pytest

from tests.journeys.models.asking import ask, listening, scripted, waiting
from tests.support.models.model_service import ModelService
from tests.support.models.upstreams import Served
from tests.support.processes.stack import free_port, wait_until

pytestmark = pytest.mark.usefixtures("worker")
WITHIN_SECONDS = 30.0
"""Before any of the upstream's replies is over, and long enough for a busy machine."""


def last_call(service: ModelService, before: int) -> Served:
    """Return the upstream's record of the one call since then."""
    wait_until(lambda: len(service.upstream.served) > before, "the upstream is called")
    line = service.upstream.served[before]
    wait_until(lambda: line.ended != "running", "the upstream is hung up on", seconds=WITHIN_SECONDS)
    return line


def assert_cancelled(service: ModelService, line: Served) -> dict[str, Any]:
    record = service.wait_for_record(str(line.call))
    assert line.ended == "client left"
    assert record["status"] == "cancelled"
    service.wait_until_settled()
    return record


def test_client_that_disconnects_during_a_stream_pays_for_sent_text(service: ModelService) -> None:
    before = len(service.upstream.served)
    with listening(service, scripted(chunks=2000, delay_seconds=0.02)) as stream:
        for _ in range(5):
            stream.read_until("abc")
    record = assert_cancelled(service, last_call(service, before))
    assert record["is_estimated"]
    assert 5 <= record["completion_tokens"] < 2000


def test_client_that_disconnects_during_silence_pays_for_sent_text(service: ModelService) -> None:
    before = len(service.upstream.served)
    with listening(service, scripted(chunks=10, stall_after=3)) as stream:
        for _ in range(3):
            stream.read_until("abc")
    line = service.upstream.served[before]
    record = service.wait_for_record(str(line.call))
    assert (record["status"], record["completion_tokens"]) == ("cancelled", 3)
    service.wait_until_settled()


def test_client_that_disconnects_before_the_first_token_pays_nothing(
    service: ModelService,
) -> None:
    before = len(service.upstream.served)
    with listening(service, scripted(wait_seconds=60)) as stream:
        stream.read_until("still working")
    record = assert_cancelled(service, last_call(service, before))
    assert (record["cost"], record["provider"], record["is_estimated"]) == (0, "fake", False)


def test_client_that_reads_nothing_for_too_long_ends_the_call(service: ModelService) -> None:
    before = len(service.upstream.served)
    front = service.stack.web(port=free_port(), WEB_SEND_SECONDS="1")
    endless = scripted(chunks=5000, delay_seconds=0.01, pad_bytes=100_000)
    with service.stack.running(front), waiting(service, endless, stream=True, front=front):
        record = assert_cancelled(service, last_call(service, before))
    assert record["completion_tokens"] > 0


def test_client_that_disconnects_before_a_whole_reply_pays_its_prompt(
    service: ModelService,
) -> None:
    before = len(service.upstream.served)
    with waiting(service, scripted(chunks=2000, delay_seconds=0.05), stream=False):
        wait_until(lambda: len(service.upstream.served) > before, "the upstream is asked")
    record = assert_cancelled(service, last_call(service, before))
    assert (record["completion_tokens"], record["is_estimated"]) == (0, True)
    assert record["prompt_tokens"] > 0


def test_slow_reader_delays_no_other_client(service: ModelService) -> None:
    with waiting(service, scripted(chunks=50_000, pad_bytes=500), stream=True) as slow:
        assert slow.recv(100).startswith(b"HTTP/1.1 200 ")
        finished: list[bool] = []

        def read_one() -> None:
            with listening(service, scripted(chunks=40, delay_seconds=0.01)) as stream:
                finished.append(stream.read_to_end()[-1] == "data: [DONE]")

        readers = [threading.Thread(target=read_one) for _ in range(16)]
        for reader in readers:
            reader.start()
        for _ in range(5):
            assert ask(service, scripted(chunks=2)).status_code == 200
            assert service.front.is_answering()
        for reader in readers:
            reader.join()
        assert finished == [True] * 16
        assert slow.recv(100)  # The slow client is still being served.
    service.wait_until_settled()
