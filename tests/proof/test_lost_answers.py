"""A commit is done and nobody hears of it: at every commit of every flow, a repetition has one effect, and no other.

Each of these, done to the product, fails here: `staging.committing` takes the bytes back after a commit whose answer
was lost; `Engine` asks for a dispatch with another token at each attempt; `credits_settle` refuses the settlement that
was done before.
"""

import pytest

from tests.proof.flows import Flow, run
from tests.proof.table import FLOWS
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
