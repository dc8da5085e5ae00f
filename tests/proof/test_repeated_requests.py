"""A request without an idempotency key has the same effect after a lost response, or beside a second client.

It leaves the same rows as two requests whose responses arrived. Each of these changes to the product fails here: a
role is unbound, or a repository or a behavior removed, without a lock, so that two clients and the audit report
success; a repetition that changes nothing is recorded in the audit.
"""

import pytest

from tests.proof.table import WRITES
from tests.proof.world import World
from tests.proof.writes import AUDIT, Write, raced, repeated, twice

NOT_HEARD = 503
HANDS_OUT = {"begin_installation"}
"""Writes that the audit records each time: they store nothing, but issue a credential for one use."""


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name)
def test_lost_response_or_second_client_has_the_effect_of_two_requests(world: World, write: Write) -> None:
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
