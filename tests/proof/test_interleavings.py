"""Somebody else acts between two steps of a flow: what each side was told is so, and nothing is left behind.

Each of these, done to the product, fails here: a placement is recorded without looking whether the content is still
`staged`; the sweep ends files without their locks; the end of a reply is told before its call is settled.
"""

import re
from itertools import product
from pathlib import Path

import pytest

from tests.proof.flows import Flow, points_of, run_visited
from tests.proof.interleaving import reached
from tests.proof.table import FLOWS
from tests.proof.world import World

ROOT = Path(__file__).parents[2]
_POINT = re.compile(r'failpoints\.hit\("([a-z_.]+)"\)')
ELSEWHERE = {
    "deliveries": "tests/shared/deliveries/test_sender.py",
    "invocation": "tests/journeys/models/test_dead_workers.py",
    "message": "tests/web/inbound/test_killed_doors.py",
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
"""Where points that no flow here reaches are tested, by the first words of their names."""


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_whoever_comes_in_between_what_each_side_was_told_is_so(world: World, flow: Flow) -> None:
    points = points_of(world, flow)
    for point, actor in product(points, flow.visitors):
        try:
            run_visited(world, flow, actor, point)
        except Exception as error:
            error.add_note(f"{actor.name} came at {point}")
            raise
    assert not flow.visitors or world.faults() == []


def test_every_failpoint_is_reached_by_a_flow_or_named_by_another_test() -> None:
    """Runs after all flows of this file."""
    texts = [path.read_text() for top in ("shared", "web", "workers") for path in (ROOT / top).rglob("*.py")]
    points = {point for text in texts for point in _POINT.findall(text)}
    untested = set()
    for point in points - reached:
        named = ELSEWHERE.get(point.partition(".")[0])
        if named is None or point not in (ROOT / named).read_text():
            untested.add(point)
    assert untested == set()
