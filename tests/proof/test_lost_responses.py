"""The response of a commit is lost: at every commit of every flow, repeating the flow has exactly one effect.

Each of these changes to the product fails here: `staging.committing` discards the bytes after a commit whose response
was lost; `Engine` requests a dispatch with another token at each attempt; `credits_settle` refuses a repeated
settlement.

Every place that opens a transaction and may write is covered by a flow, or by a request that is repeated.
"""

import pytest

from tests.proof.commits import ROOT, visited, watched, written
from tests.proof.flows import Flow, ran, run
from tests.proof.places import ELSEWHERE, READ, list_places
from tests.proof.table import FLOWS, WRITES
from tests.proof.world import World


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_repeated_flow_has_one_effect_after_losing_any_commit_response(world: World, flow: Flow) -> None:
    commits = run(world, flow, times=2).commits
    assert commits, "a flow changes something"
    for commit in commits:
        try:
            assert run(world, flow, lost=commit).is_lost, "a flow makes the same commits again"
        except Exception as error:
            error.add_note(f"the answer to this commit was lost: {commit}")
            raise
    assert world.faults() == []


def test_every_place_that_opens_a_transaction_is_opened_by_a_flow(world: World) -> None:
    with watched():
        for flow in FLOWS:
            if flow.name not in ran:
                run(world, flow)
        for write in WRITES:
            write.prepare(world)()
    exempt = READ | ELSEWHERE.keys()
    left = {str(place) for place in list_places() - visited}
    assert {place for place in left if not any(map(place.startswith, exempt))} == set()
    # Periodic jobs may or may not have run meanwhile.
    every = set(map(str, list_places()))
    assert {at for at in exempt if not any(place.startswith(at) for place in every)} == set(), "no such place"
    assert {str(site) for site in written if any(map(str(site).startswith, READ))} == set(), "it writes"
    in_web = {site for site in written if site.path.startswith("web/")}
    assert in_web <= list_places(), "routes write in a transaction, and only read in autocommit"


def test_places_tested_elsewhere_name_an_existing_test() -> None:
    assert {path for path in ELSEWHERE.values() if not (ROOT / path).exists()} == set()
