"""`kill -9` of the worker during calls and at each of their steps: clients receive errors, and all accounts agree."""

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
import redis

from shared.messaging.replies import ReplyAddress
from shared.models.catalog_file import CatalogFile
from shared.models.dialects import Dialect
from shared.models.queue.call_queue import AcceptedRequest, CallQueue
from tests.journeys.models.asking import (
    TIMEOUT_SECONDS,
    ask,
    assert_ended_with_an_error,
    body_of,
    has_finished_well,
    listening,
    scripted,
    waiting,
)
from tests.journeys.models.conftest import running_worker
from tests.support.data.inventory import query
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import free_port, wait_until

LONG = scripted(chunks=2000, delay_seconds=0.02)
SHORT = scripted(chunks=5)
ENTRY = CatalogFile(None).current().entries[0]
REQUEST = AcceptedRequest(entry=ENTRY, dialect=Dialect.CHAT, is_stream=False, created=0, body=body_of(SHORT))


def test_calls_of_a_killed_worker_fail_and_are_settled_by_estimate(
    service: ModelService,
) -> None:
    before = len(service.upstream.served)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(ask(service, LONG)))
    with running_worker(service) as worker, listening(service, LONG) as stream:
        thread.start()
        stream.read_until("abc")
        wait_until(lambda: len(service.upstream.served) == before + 2, "both calls are made")
        wait_until(lambda: any(streamed(service)), "what was said is noted")
        worker.kill()
        assert_ended_with_an_error(stream.read_to_end())
        thread.join()
    (answer,) = answers
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "provider_error")
    assert answer.headers["x-should-retry"] == "false"
    calls = [str(line.call) for line in service.upstream.served[before:]]
    assert sorted(service.open_invocations()) == sorted(calls)
    service.sweep()
    records = [service.wait_for_record(call) for call in calls]
    assert {(record["status"], record["is_estimated"]) for record in records} == {("failed", True)}
    whole, stream_charged = sorted(
        (record["prompt_tokens"], record["completion_tokens"]) for record in records
    )
    assert whole == (0, 0)  # None of it was delivered.
    assert min(stream_charged) > 0


def streamed(service: ModelService) -> list[int]:
    """Return the number of streamed tokens recorded for each running call."""
    statement = "SELECT streamed_tokens FROM invocations WHERE state = 'dispatched'"
    return [row[0] for row in query(service.stack, statement)]


def test_terminating_worker_finishes_its_calls(service: ModelService) -> None:
    with (
        running_worker(service) as worker,
        listening(service, scripted(chunks=50, delay_seconds=0.02)) as stream,
    ):
        stream.read_until("abc")
        worker.send_signal(15)
        assert has_finished_well(stream.read_to_end())
        assert worker.wait_for_end() == 0
    service.wait_until_settled()


@pytest.mark.parametrize(
    ("point", "is_called", "is_settled"),
    [
        ("invocation.dispatched", False, False),
        ("invocation.opened", True, False),
        ("credits.settled", True, True),
        ("invocation.settled", True, True),
    ],
)
def test_call_of_a_killed_worker_is_settled_once_as_reported(
    service: ModelService, point: str, *, is_called: bool, is_settled: bool
) -> None:
    before = len(service.upstream.served)
    with running_worker(service, FAULTS=point) as worker, waiting(service, SHORT, stream=False):
        worker.wait_for_end()
    assert len(service.upstream.served) - before == is_called
    assert (service.open_invocations() == []) == is_settled
    service.sweep()
    newest = list(service.invocations())[-1]
    (record,) = service.records("invocation_id = %s", newest)
    assert record["is_estimated"] is not is_settled
    assert (record["cost"] > 0) == is_settled


def test_call_whose_worker_dies_before_it_begins_is_made_by_another(service: ModelService) -> None:
    before = len(service.upstream.served)
    front = service.stack.web(port=free_port(), PATIENCE="whole")
    with service.stack.running(front), ThreadPoolExecutor() as threads:
        with running_worker(service, FAULTS="invocation.taken") as worker:
            asked = threads.submit(ask, service, SHORT, front=front)
            worker.wait_for_end()
        with running_worker(service):
            answer = asked.result(TIMEOUT_SECONDS)
            # Without a new message, the call would be refused when its queue timeout ends.
            assert answer.status_code == 200
    assert len(service.upstream.served) == before + 1
    assert front.has_logged("invocation.returned")


def test_repeated_messages_of_ended_calls_change_nothing(service: ModelService, valkey: redis.Redis) -> None:
    calls, made = list(service.invocations()), len(service.upstream.served)
    records = service.records()
    for call in calls:
        address = ReplyAddress(invocation_id=UUID(call), channel="quartermaster:replies:gone")
        CallQueue(valkey).put(address, REQUEST, organization_id=service.organization_id)
    with running_worker(service):
        assert ask(service, SHORT).status_code == 200
    assert len(service.upstream.served) == made + 1
    assert service.records()[:-1] == records
