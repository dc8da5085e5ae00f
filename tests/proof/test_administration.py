"""Administration survives a lost answer and a second client: what is left is what two answered requests leave.

Each of these, done to the product, fails here: a role is unbound, a repository or a behavior removed without a lock, so
that two are told, and the audit says, that they did it.
"""

import pytest

from tests.proof.administration import WRITES, make_cast, raced, repeated, twice
from tests.proof.world import World

NOT_HEARD = 503


@pytest.mark.parametrize("name", WRITES)
def test_a_lost_answer_or_a_second_client_leaves_what_two_requests_leave(world: World, name: str) -> None:
    cast = world.once(make_cast)
    heard, journal = twice(world, cast, name)
    first, second = heard.statuses
    assert journal.commits, "it changes something"
    for commit in journal.commits:
        again = repeated(world, cast, name, commit)
        assert again.statuses == (NOT_HEARD, second), commit
        assert again.rows == heard.rows, commit
    at_once = raced(world, cast, name)
    assert sorted(at_once.statuses) == sorted((first, second))
    assert at_once.rows == heard.rows
