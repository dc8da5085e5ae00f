"""The life of a call in the ledger: held, dispatched, charged, released or settled by estimate."""

from uuid import uuid4

import pytest
from sqlalchemy import text

from shared.credits.balances import Policy
from shared.credits.errors import (
    CreditPolicySuspended,
    InsufficientCredits,
    InvocationConflict,
    SettlementRefused,
)
from shared.credits.holds import dispatch, hold, void
from shared.credits.ledger import top_up
from shared.credits.settlement import Effect, Outcome, Status, settle
from shared.credits.sweeps import (
    GRACE,
    mark_unresolved,
    purge_invocations,
    release_overdue_holds,
    settle_unresolved,
)
from shared.identity.access.authorization import OPERATOR
from shared.ids import new_id
from tests.shared.credits.calls import Calls
from tests.support.data.identity import IdentityFactory


@pytest.fixture
def funded(calls: Calls) -> Calls:
    calls.top_up(1000)
    return calls


def test_a_call_holds_its_worst_case_and_is_charged_its_cost(funded: Calls) -> None:
    invocation_id, token = funded.dispatched(300)
    assert (funded.balance.balance, funded.balance.held, funded.balance.available) == (1000, 300, 700)
    settled = funded.settle(invocation_id, token, 120)
    assert (settled.effect, settled.cost, settled.balance) == (Effect.SETTLED, 120, 880)
    assert (funded.balance.balance, funded.balance.held, funded.balance.available) == (880, 0, 880)


def test_a_call_that_cannot_be_afforded_is_refused_with_the_figures(funded: Calls) -> None:
    funded.hold(900)
    with pytest.raises(InsufficientCredits) as refused:
        funded.hold(101)
    assert (refused.value.available, refused.value.held, refused.value.required) == (100, 900, 101)
    assert refused.value.data == {"available": "0.0001", "held": "0.0009", "required": "0.000101"}
    assert funded.discrepancies() == []


def test_an_organization_that_never_had_credits_has_none(calls: Calls) -> None:
    with pytest.raises(InsufficientCredits):
        calls.hold(1)
    assert calls.balance.balance == 0


def test_the_same_hold_again_changes_nothing_even_when_nothing_is_left(funded: Calls) -> None:
    invocation_id = new_id()
    for _ in range(2):
        funded.hold(1000, invocation_id=invocation_id, request_hash=b"same")
    assert funded.balance.held == 1000


@pytest.mark.parametrize("available", [1000, 5000])
def test_an_invocation_made_for_another_request_is_a_conflict(funded: Calls, available: int) -> None:
    if available > 1000:
        funded.top_up(available - 1000)
    invocation_id = funded.hold(1000, request_hash=b"one")
    with pytest.raises(InvocationConflict):
        funded.hold(1000, invocation_id=invocation_id, request_hash=b"another")
    assert funded.balance.held == 1000


def test_only_the_commit_of_a_hold_does_not_wait_for_the_disk(funded: Calls) -> None:
    with funded.database.transaction() as session:
        session.execute(text("SET LOCAL synchronous_commit = on"))
        asked = text("SHOW synchronous_commit")
        invocation = funded.new(300)
        hold(session, invocation=invocation)
        assert session.execute(asked).scalar_one() == "off"
        taken = dispatch(session, invocation.id)
        assert taken is not None
        assert session.execute(asked).scalar_one() == "on"
    funded.settle(invocation.id, taken.token, 120)
    assert funded.discrepancies() == []


@pytest.mark.parametrize("act", ["settle", "void", "top_up"])
def test_charges_and_top_ups_commit_synchronously(funded: Calls, act: str) -> None:
    with funded.database.transaction() as session:
        session.execute(text("SET LOCAL synchronous_commit = on"))
        invocation, other = funded.new(300), funded.new(300)
        hold(session, invocation=invocation)
        taken = dispatch(session, invocation.id)
        assert taken is not None
        hold(session, invocation=other)
        asked = text("SHOW synchronous_commit")
        assert session.execute(asked).scalar_one() == "off"
        match act:
            case "settle":
                settle(session, invocation.id, taken.token, Outcome(status=Status.COMPLETED, counts=None))
            case "void":
                void(session, other.id)
            case "top_up":
                organization = {"organization_id": funded.organization_id}
                top_up(session, amount=1, reference="durable", actor=OPERATOR, **organization)
        assert session.execute(asked).scalar_one() == "on"


def test_ids_and_references_of_another_organization_are_independent(
    funded: Calls, factory: IdentityFactory
) -> None:
    other = Calls(funded.database, factory.organization().id)
    assert not other.top_up(500, "same").is_replayed
    assert not funded.top_up(500, "same").is_replayed
    invocation_id = funded.hold(10, request_hash=b"same")
    with pytest.raises(InvocationConflict):
        other.hold(10, invocation_id=invocation_id, request_hash=b"same")
    assert (other.balance.held, other.balance.available) == (0, 500)


def test_sweeps_leave_alone_what_still_has_its_lease(funded: Calls) -> None:
    waiting, (running, token) = funded.hold(10), funded.dispatched(10)
    release_overdue_holds(funded.database)
    mark_unresolved(funded.database)
    assert (funded.state(waiting), funded.state(running)) == ("held", "dispatched")
    assert funded.balance.held == 20
    funded.settle(running, token, 5)


def test_only_one_execution_may_call_the_provider(funded: Calls) -> None:
    invocation_id = funded.hold(10)
    token = uuid4()
    assert funded.dispatch(invocation_id, token) is not None
    assert funded.dispatch(invocation_id) is None
    again = funded.dispatch(invocation_id, token)
    assert again is not None
    assert again.token == token


def test_call_with_an_expired_queue_lease_is_never_dispatched(funded: Calls) -> None:
    invocation_id = funded.hold(10)
    funded.lose(invocation_id)
    assert funded.dispatch(invocation_id) is None


def test_a_voided_call_gives_back_its_hold_and_is_never_dispatched(funded: Calls) -> None:
    invocation_id = funded.hold(10)
    assert funded.void(invocation_id)
    assert not funded.void(invocation_id)
    assert funded.dispatch(invocation_id) is None
    assert funded.balance.held == 0


def test_a_dispatched_call_cannot_be_voided(funded: Calls) -> None:
    invocation_id, _ = funded.dispatched(10)
    assert not funded.void(invocation_id)
    assert funded.balance.held == 10


def test_settling_twice_charges_once(funded: Calls) -> None:
    invocation_id, token = funded.dispatched(10)
    funded.settle(invocation_id, token, 7)
    again = funded.settle(invocation_id, token, 9)
    assert (again.effect, again.cost) == (Effect.REPEATED, 7)
    assert funded.balance.balance == 993


def test_the_actual_cost_is_charged_even_above_the_hold(funded: Calls) -> None:
    invocation_id, token = funded.dispatched(1000)
    assert funded.settle(invocation_id, token, 1500).balance == -500
    with pytest.raises(InsufficientCredits):
        funded.hold(0)


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED, Status.INCOMPLETE])
def test_a_call_that_ended_badly_is_charged_what_was_reported(funded: Calls, status: Status) -> None:
    invocation_id, token = funded.dispatched(10)
    assert funded.settle(invocation_id, token, 3, status=status).cost == 3


def test_a_call_that_consumed_nothing_costs_nothing_and_leaves_no_entry(funded: Calls) -> None:
    invocation_id, token = funded.dispatched(10)
    assert funded.settle(invocation_id, token, 0, status=Status.FAILED).cost == 0
    assert (funded.balance.version, funded.balance.held) == (1, 0)
    assert funded.discrepancies() == []


def test_unreported_call_is_estimated_from_prompt_and_streamed_tokens(funded: Calls) -> None:
    invocation_id, token = funded.dispatched(100, prompt_tokens=20)
    assert funded.note_streamed(invocation_id, token, 30)
    assert funded.note_streamed(invocation_id, token, 25)
    settled = funded.settle(invocation_id, token, None, status=Status.CANCELLED)
    assert (settled.cost, settled.is_estimated) == (50, True)


def test_implausible_counts_are_replaced_by_an_estimate(funded: Calls) -> None:
    invocation_id, token = funded.dispatched(100, prompt_tokens=20)
    assert funded.settle(invocation_id, token, 10**12).cost == 20


def test_token_of_another_dispatch_settles_nothing(funded: Calls) -> None:
    invocation_id, _ = funded.dispatched(10)
    held = funded.hold(10)
    for target in (invocation_id, held, uuid4()):
        with pytest.raises(SettlementRefused):
            funded.settle(target, uuid4(), 5)
    assert not funded.note_streamed(invocation_id, uuid4(), 5)


def test_an_overdue_hold_is_released_and_a_dispatched_one_kept(funded: Calls) -> None:
    waiting, (running, _) = funded.hold(10), funded.dispatched(20)
    funded.lose(waiting)
    funded.lose(running)
    release_overdue_holds(funded.database)
    mark_unresolved(funded.database)
    assert (funded.state(waiting), funded.state(running)) == ("expired", "unresolved")
    assert funded.balance.held == 20
    assert funded.discrepancies() == []


def test_report_of_a_worker_with_an_expired_lease_still_settles(funded: Calls) -> None:
    invocation_id, token = funded.dispatched(20)
    funded.lose(invocation_id)
    mark_unresolved(funded.database)
    assert funded.settle(invocation_id, token, 15).effect is Effect.SETTLED
    assert funded.balance.balance == 985


def test_unresolved_call_is_charged_by_estimate_and_corrected_once(funded: Calls) -> None:
    invocation_id, token = funded.dispatched(100, prompt_tokens=40)
    funded.note_streamed(invocation_id, token, 10)
    funded.lose(invocation_id)
    mark_unresolved(funded.database)
    settle_unresolved(funded.database, grace=GRACE)
    assert funded.state(invocation_id) == "unresolved"
    funded.lose(invocation_id, hours=24)
    settle_unresolved(funded.database, grace=GRACE)
    assert (funded.balance.balance, funded.balance.held) == (950, 0)
    corrected = funded.settle(invocation_id, token, 70)
    assert (corrected.effect, corrected.cost, corrected.is_estimated) == (Effect.CORRECTED, 70, False)
    assert funded.settle(invocation_id, token, 90).effect is Effect.REPEATED
    assert (funded.balance.balance, funded.balance.spent) == (930, 70)
    assert funded.discrepancies() == []


def test_unresolved_call_without_streamed_tokens_costs_nothing_until_reported(
    funded: Calls,
) -> None:
    invocation_id, token = funded.dispatched(300, prompt_tokens=40)
    funded.lose(invocation_id, hours=25)
    assert (mark_unresolved(funded.database), settle_unresolved(funded.database)) == (1, 1)
    assert (funded.balance.balance, funded.balance.held) == (1000, 0)
    corrected = funded.settle(invocation_id, token, 70)
    assert (corrected.effect, corrected.cost, corrected.balance) == (Effect.CORRECTED, 70, 930)
    assert funded.discrepancies() == []


def test_another_estimate_is_no_correction(funded: Calls) -> None:
    invocation_id, token = funded.dispatched(100)
    funded.settle(invocation_id, token, 50, is_estimated=True)
    assert funded.settle(invocation_id, token, 60, is_estimated=True).effect is Effect.REPEATED
    assert funded.settle(invocation_id, token, 60).effect is Effect.CORRECTED


def test_a_suspended_organization_starts_nothing_and_pays_for_what_runs(funded: Calls) -> None:
    invocation_id, token = funded.dispatched(100)
    funded.set_policy(Policy.SUSPENDED)
    with pytest.raises(CreditPolicySuspended):
        funded.hold(1)
    assert funded.balance.available == 0
    assert funded.settle(invocation_id, token, 60).balance == 940


def test_a_suspended_organization_calls_no_free_model_either(funded: Calls) -> None:
    funded.set_policy(Policy.SUSPENDED)
    with pytest.raises(CreditPolicySuspended):
        funded.hold(0)
    funded.set_policy(Policy.ACTIVE)
    funded.hold(0)


def test_an_overdraft_may_be_spent_to_the_unit(funded: Calls) -> None:
    funded.set_policy(Policy.ACTIVE, overdraft=50)
    funded.charge(1050)
    with pytest.raises(InsufficientCredits):
        funded.hold(1)


def test_a_limit_caps_what_is_spent_in_a_month(funded: Calls) -> None:
    funded.charge(10)
    funded.set_policy(Policy.LIMIT, spending_limit=100)
    funded.charge(60)
    held = funded.hold(30)
    with pytest.raises(InsufficientCredits):
        funded.hold(1)
    funded.void(held)
    last_month = "UPDATE credit_balances SET spent_month = spent_month - interval '1 month' WHERE organization_id = :id"
    funded.run(last_month, id=funded.organization_id)
    assert (funded.balance.spent, funded.balance.available) == (0, 100)
    funded.charge(100)
    assert funded.balance.spent == 100


def test_ended_invocations_are_forgotten_and_open_ones_never(funded: Calls) -> None:
    ended, (open_one, _) = funded.dispatched(10), funded.dispatched(10)
    funded.settle(*ended, 10)
    old = "UPDATE invocations SET created_at = now() - interval '60 days', ended_at = ended_at - interval '60 days'"
    funded.run(f"{old} WHERE organization_id = :id", id=funded.organization_id)
    assert purge_invocations(funded.database) == 1
    assert (funded.state(ended[0]), funded.state(open_one)) == ("None", "dispatched")
    assert funded.discrepancies() == []
