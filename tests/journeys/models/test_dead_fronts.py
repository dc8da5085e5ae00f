"""`kill -9` of the front in the middle of calls and at each of its steps: workers and sweeps settle what is left."""

from __future__ import annotations

import pytest
import redis
import requests

from tests.journeys.models.asking import ask, listening, scripted
from tests.support.model_service import ModelService
from tests.support.stack import free_port

pytestmark = pytest.mark.usefixtures("worker")
LONG = scripted(chunks=2000, delay_seconds=0.02)


def test_a_killed_front_leaves_calls_that_the_worker_settles(
    service: ModelService, valkey: redis.Redis
) -> None:
    before = len(service.upstream.served)
    front = service.stack.web(port=free_port())
    with (
        service.stack.running(front),
        listening(service, scripted(chunks=50, delay_seconds=0.02), front=front) as ending,
        listening(service, LONG, front=front) as endless,
    ):
        ending.read_until("abc")
        endless.read_until("abc")
        front.kill()
    # The stream of a dead front expires after a while; here it does so soon, and the living front renews its own.
    for key in valkey.scan_iter("quartermaster:replies:*"):
        valkey.expire(key, 4)
    service.wait_until_settled()
    lines = {str(line.call): line for line in service.upstream.served[before:]}
    assert {service.wait_for_record(call)["status"] for call in lines} == {"completed", "cancelled"}
    assert sorted(line.ended for line in lines.values()) == ["answered", "client left"]


@pytest.mark.parametrize(
    ("point", "state"), [("invocation.held", "expired"), ("invocation.queued", "settled")]
)
def test_a_front_that_dies_before_it_can_wait_leaves_nothing_held(
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
    assert len(service.upstream.served) - before == (state == "settled")
