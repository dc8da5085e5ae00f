"""A commit is done and nobody hears of it: at every commit of every flow, a repetition has one effect, and no other.

Each of these, done to the product, fails here: `staging.committing` takes the bytes back after a commit whose answer
was lost; `Engine` asks for a dispatch with another token at each attempt; `credits_settle` refuses the settlement that
was done before.

Every place that opens a transaction and may write is opened by a flow, or by a request that is repeated.
"""

import pytest

from tests.proof.commits import ROOT, visited, watched, written
from tests.proof.flows import Flow, ran, run
from tests.proof.places import ELSEWHERE, READ, list_places
from tests.proof.table import FLOWS, WRITES
from tests.proof.world import World


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_whatever_answer_of_a_commit_is_lost_a_repetition_has_one_effect(world: World, flow: Flow) -> None:
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
    # What is done by the clock may have been visited, or not.
    every = set(map(str, list_places()))
    assert {at for at in exempt if not any(place.startswith(at) for place in every)} == set(), "no such place"
    assert {str(site) for site in written if any(map(str(site).startswith, READ))} == set(), "it writes"
    in_web = {site for site in written if site.path.startswith("web/")}
    assert in_web <= list_places(), "routes write in a transaction, and only read in autocommit"


def test_what_is_tested_elsewhere_has_its_test() -> None:
    assert {path for path in ELSEWHERE.values() if not (ROOT / path).exists()} == set()
