"""`kill -9` of the web process during calls and at each of its steps: workers and sweeps settle what is left."""

import pytest
import requests

from tests.journeys.models.asking import ask, listening, scripted
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import free_port, wait_until

pytestmark = pytest.mark.usefixtures("worker")
LONG = scripted(chunks=2000, delay_seconds=0.02)


def test_calls_of_a_killed_web_process_are_charged_for_sent_text(
    service: ModelService,
) -> None:
    before = len(service.upstream.served)
    front = service.stack.web(port=free_port())
    with (
        service.stack.running(front),
        listening(service, LONG, front=front) as one,
        listening(service, LONG, front=front) as other,
    ):
        one.read_until("abc")
        other.read_until("abc")
        front.kill()
    service.wait_until_settled()
    lines = {str(line.call): line for line in service.upstream.served[before:]}
    assert len(lines) == 2
    assert {service.wait_for_record(call)["status"] for call in lines} == {"cancelled"}
    assert {line.ended for line in lines.values()} == {"client left"}


@pytest.mark.parametrize(
    ("point", "state"), [("invocation.held", "expired"), ("invocation.queued", "settled")]
)
def test_web_process_that_dies_before_it_waits_leaves_no_hold(
    service: ModelService, point: str, state: str
) -> None:
    before = len(service.upstream.served)
    front = service.stack.web(port=free_port(), FAULTS=point)
    with service.stack.running(front), pytest.raises(requests.ConnectionError):
        ask(service, scripted(chunks=5), front=front)
    if point == "invocation.queued":
        service.wait_until_settled()
    service.sweep()
    assert list(service.invocations().values())[-1] == state
    if state == "settled":
        # The upstream records the disconnect when it next sends.
        wait_until(lambda: len(service.upstream.served) > before, "the upstream has noticed")
    assert len(service.upstream.served) - before == (state == "settled")
