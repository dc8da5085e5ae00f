"""The number of open calls of an organization: incremented by a hold and decremented by every end of one."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from shared.credits.balances import Policy
from shared.credits.errors import CreditPolicySuspended, InsufficientCredits
from shared.credits.holds import AtShare, Progress, hold, renew
from shared.credits.open_calls import COUNT_OPEN_CALLS, count_open_calls
from shared.credits.sweeps import mark_unresolved, release_overdue_holds, settle_unresolved
from shared.ids import new_id
from tests.shared.credits.calls import Calls
from tests.shared.credits.test_races import run_concurrently


@pytest.fixture
def funded(calls: Calls) -> Calls:
    calls.top_up(1000)
    return calls


def open_calls(calls: Calls) -> int:
    with calls.database.autocommit() as session:
        found = session.execute(
            text("SELECT calls FROM credit_balances WHERE organization_id = CAST(:id AS uuid)"),
            {"id": str(calls.organization_id)},
        )
        return int(found.scalar_one())


def hold_within(calls: Calls, share: int | None, amount: int = 0) -> None:
    with calls.database.autocommit() as session:
        hold(session, invocation=calls.new(amount), share=share)


def expire(calls: Calls) -> None:
    calls.lose(calls.hold(0))
    release_overdue_holds(calls.database)


def die(calls: Calls) -> None:
    calls.lose(calls.dispatched(0)[0], hours=30)
    mark_unresolved(calls.database)
    settle_unresolved(calls.database)


def repeat_the_hold(calls: Calls) -> None:
    invocation_id = calls.hold(0)
    calls.hold(0, invocation_id=invocation_id)
    calls.void(invocation_id)


def correct(calls: Calls) -> None:
    invocation_id, token = calls.dispatched(0)
    calls.settle(invocation_id, token, 3, is_estimated=True)
    calls.settle(invocation_id, token, 5)


ENDINGS: list[Callable[[Calls], object]] = [
    lambda calls: calls.charge(0),
    lambda calls: calls.charge(7),
    lambda calls: calls.void(calls.hold(0)),
    expire,
    die,
    repeat_the_hold,
    correct,
]


@pytest.mark.parametrize("end", ENDINGS)
def test_every_end_of_a_hold_decrements_open_calls(funded: Calls, end: Callable[[Calls], object]) -> None:
    funded.hold(0)
    end(funded)
    assert open_calls(funded) == 1
    assert funded.discrepancies() == []


def test_call_beyond_the_share_holds_nothing_and_reports_open_calls(funded: Calls) -> None:
    hold_within(funded, 2, 10)
    hold_within(funded, 2, 10)
    with pytest.raises(AtShare) as raised:
        hold_within(funded, 2, 10)
    assert raised.value.open_calls == 2
    assert (open_calls(funded), funded.balance.held) == (2, 20)
    hold_within(funded, 3, 10)
    hold_within(funded, None, 10)


def test_unaffordable_call_is_insufficient_and_not_at_share(funded: Calls) -> None:
    hold_within(funded, 1, 10)
    with pytest.raises(InsufficientCredits):
        hold_within(funded, 1, 991)
    funded.set_policy(Policy.SUSPENDED)
    with pytest.raises(CreditPolicySuspended):
        hold_within(funded, 1)


def test_concurrent_holds_never_exceed_the_share(funded: Calls) -> None:
    def try_to_hold(_: int) -> bool:
        try:
            hold_within(funded, 5, 1)
        except AtShare:
            return False
        return True

    assert sum(run_concurrently(try_to_hold)) == 5
    assert (open_calls(funded), funded.discrepancies()) == (5, [])


def test_open_calls_are_counted_over_all_organizations_by_their_index(funded: Calls) -> None:
    with funded.database.autocommit() as session:
        before = count_open_calls(session)
        mine = replace(funded.new(0), provider="somebody")
        hold(session, invocation=mine)
        after = count_open_calls(session)
        besides = count_open_calls(session, [mine.id, new_id()])
    assert (after.total, after.organizations) == (before.total + 1, before.organizations + 1)
    assert after.by_provider == {"somebody": 1}
    assert (besides.total, besides.own) == (before.total, frozenset({mine.id}))
    assert besides.by_provider == {}
    with funded.database.transaction() as session:
        session.execute(text("SET LOCAL enable_seqscan = off"))
        plan = session.execute(text("EXPLAIN " + COUNT_OPEN_CALLS.replace("%(own)s", "'{}'")))
        assert "ix_invocations_open" in "\n".join(row[0] for row in plan)


def test_holding_and_ending_a_call_write_to_no_index_of_the_balance(funded: Calls) -> None:
    with funded.database.autocommit() as session:
        columns = "SELECT count(*) FROM pg_index i WHERE i.indrelid = 'credit_balances'::regclass"
        assert (
            session.execute(text(columns)).scalar() == 1
        )  # its primary key: whatever else changes stays in its page


def test_renewal_extends_exactly_the_given_leases_in_one_statement(funded: Calls) -> None:
    mine = [funded.dispatched(10) for _ in range(3)]
    ended, foreign = funded.dispatched(10), funded.dispatched(10)
    funded.settle(*ended, 1)
    for invocation_id, _ in (*mine, foreign):
        funded.lose(invocation_id)
    progress = [Progress(invocation_id=at[0], token=at[1], streamed_tokens=4) for at in (*mine, ended)]
    progress.append(Progress(invocation_id=foreign[0], token=mine[0][1], streamed_tokens=4))
    with funded.database.autocommit() as session:
        assert renew(session, progress) == 3
        assert renew(session, []) == 0
    assert mark_unresolved(funded.database) == 1
    assert [funded.state(at[0]) for at in (*mine, foreign)] == ["dispatched"] * 3 + ["unresolved"]
    settle_unresolved(funded.database, grace=timedelta())
    # What was noted is the estimate of a call about which nobody says anything any more.
    assert funded.settle(*mine[0], None).cost == 4
