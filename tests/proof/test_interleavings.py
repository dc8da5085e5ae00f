"""Another actor acts between two steps of a flow: every response is true, and nothing is left behind.

Each of these changes to the product fails here: a placement is recorded without a check that the content is still
`staged`; the sweep expires files without locking them; the end of a reply is reported before its call is settled.
"""

import re
from itertools import product
from pathlib import Path

import pytest

from tests.proof.flows import Flow, list_failpoints, run_visited
from tests.proof.interleaving import reached
from tests.proof.table import FLOWS
from tests.proof.world import World

ROOT = Path(__file__).parents[2]
_POINT = re.compile(r'failpoints\.hit\("([a-z_.]+)"\)')
ELSEWHERE = {
    "deliveries": "tests/shared/deliveries/test_sender.py",
    "invocation": "tests/journeys/models/test_dead_workers.py",
    "message": "tests/web/inbound/test_process_deaths.py",
    "move": "tests/shared/files/maintenance/test_store_migration.py",
    "notifications": "tests/web/media/test_notifications.py",
    "push": "tests/web/media/test_killed_pushes.py",
    "remote": "tests/shared/a2a/remote/test_deaths.py",
    "scrub": "tests/shared/files/maintenance/test_scrubbing.py",
    "sign_in": "tests/chaos/faults.py",
    "storage": "tests/shared/files/metering/test_storage_charges.py",
    "usage": "tests/shared/credits/usage/test_pruning.py",
    "webhook": "tests/web/media/test_webhooks.py",
}
"""The tests of failpoints that no flow here reaches, by the first word of the failpoint's name."""


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_responses_are_true_when_another_actor_interleaves(world: World, flow: Flow) -> None:
    points = list_failpoints(world, flow)
    for point, actor in product(points, flow.visitors):
        try:
            run_visited(world, flow, actor, point)
        except Exception as error:
            error.add_note(f"{actor.name} came at {point}")
            raise
    assert not flow.visitors or world.faults() == []


def test_every_failpoint_is_reached_by_a_flow_or_named_by_another_test() -> None:
    """Runs after all flows of this file, which record the failpoints that they reach."""
    texts = [path.read_text() for top in ("shared", "web", "workers") for path in (ROOT / top).rglob("*.py")]
    points = {point for text in texts for point in _POINT.findall(text)}
    untested = set()
    for point in points - reached:
        named = ELSEWHERE.get(point.partition(".")[0])
        if named is None or point not in (ROOT / named).read_text():
            untested.add(point)
    assert untested == set()
