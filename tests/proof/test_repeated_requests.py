"""A request that takes no key survives a lost answer and a second client: it leaves what two answered requests leave.

Each of these, done to the product, fails here: a role is unbound, a repository or a behavior removed without a lock, so
that two are told, and the audit says, that they did it; a repetition that changes nothing is in the audit.
"""

import pytest

from tests.proof.table import WRITES
from tests.proof.world import World
from tests.proof.writes import AUDIT, Write, raced, repeated, twice

NOT_HEARD = 503
HANDS_OUT = {"begin_installation"}
"""What is in the audit each time: it keeps nothing, but hands something out that is good for an act."""


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name)
def test_a_lost_answer_or_a_second_client_leaves_what_two_requests_leave(world: World, write: Write) -> None:
    heard = twice(world, write)
    first, second = heard.outcome.statuses
    assert heard.first.commits, "it changes something"
    assert heard.changed != {AUDIT} or write.name in HANDS_OUT, "what changes nothing is not in the audit"
    for commit in heard.first.commits:
        again = repeated(world, write, commit)
        assert again.statuses == (NOT_HEARD, second), commit
        assert again.rows == heard.outcome.rows, commit
    at_once = raced(world, write)
    assert sorted(at_once.statuses) == sorted((first, write.late or second))
    assert at_once.rows == heard.outcome.rows
