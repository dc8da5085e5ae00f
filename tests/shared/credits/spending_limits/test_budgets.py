"""Each call is held in every budget that covers it, and its outcome is counted there exactly."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from shared.credits.errors import BudgetExceeded, ModelNotAllowed, RateLimitExceeded
from shared.credits.holds import Attribution
from shared.credits.spending_limits import budgets
from shared.credits.spending_limits.budgets import Budget, NewBudget, Period, SubjectKind, TooManyLimits, Unit
from shared.credits.spending_limits.key_model_allowlist import remove_key_models, set_key_models
from shared.credits.sweeps import mark_unresolved, release_overdue_holds, settle_unresolved
from shared.errors import ValidationFailed
from shared.identity.access.authorization import OPERATOR
from shared.identity.errors import AlreadyExists, ResourceNotFound
from tests.shared.credits.calls import Calls
from tests.shared.credits.test_races import run_concurrently
from tests.support.data.identity import IdentityFactory

MICRO = 1_000_000
Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The budgets of a member of an organization, and the member's calls with a key."""

    calls: Calls
    user_id: UUID
    key_id: UUID

    @property
    def attribution(self) -> Attribution:
        return Attribution(user_id=self.user_id, api_key_id=self.key_id)

    def create(
        self,
        amount: int,
        *,
        kind: SubjectKind = SubjectKind.USER,
        subject_id: UUID | None = None,
        unit: Unit = Unit.CREDITS,
        period: Period = Period.ONCE,
        model: str | None = None,
    ) -> UUID:
        """Create a budget with an amount of µcr, requests or tokens."""
        own = {SubjectKind.USER: self.user_id, SubjectKind.API_KEY: self.key_id}
        new = NewBudget(
            subject_kind=kind,
            subject_id=subject_id or own[kind],
            unit=unit,
            period=period,
            amount=amount if unit is Unit.CREDITS else amount * MICRO,
            model=model,
        )
        with self.calls.database.transaction() as session:
            made = budgets.create_budget(
                session, actor=OPERATOR, organization_id=self.calls.organization_id, new=new
            )
        return made.id

    def read(self, budget_id: UUID) -> Budget:
        with self.calls.database.transaction() as session:
            return budgets.get_budget(
                session, actor=OPERATOR, organization_id=self.calls.organization_id, budget_id=budget_id
            )

    def figures(self, budget_id: UUID) -> tuple[int, int]:
        """Return the spent and held amounts."""
        budget = self.read(budget_id)
        return budget.spent, budget.held

    def change(self, budget_id: UUID, amount: int) -> None:
        with self.calls.database.transaction() as session:
            budgets.change_budget(
                session,
                actor=OPERATOR,
                organization_id=self.calls.organization_id,
                budget_id=budget_id,
                amount=amount,
            )

    def delete(self, budget_id: UUID) -> None:
        with self.calls.database.transaction() as session:
            budgets.delete_budget(
                session, actor=OPERATOR, organization_id=self.calls.organization_id, budget_id=budget_id
            )

    def hold(self, amount: int, **options: object) -> UUID:
        return self.calls.hold(amount, **{"attribution": self.attribution, **options})

    def dispatched(self, amount: int, **options: object) -> tuple[UUID, UUID]:
        return self.calls.dispatched(amount, **{"attribution": self.attribution, **options})

    def charge(self, amount: int, **options: object) -> None:
        self.calls.charge(amount, **{"attribution": self.attribution, **options})

    def within_a_minute(self, act: Callable[[], Found]) -> Found:
        """Return the result of `act` within one minute of the clock; repeat it if a new minute began meanwhile."""
        while True:
            began = self._minute()
            found = act()
            if self._minute() == began:
                return found

    def _minute(self) -> object:
        with self.calls.database.autocommit() as session:
            return session.execute(text("SELECT date_trunc('minute', now())")).scalar_one()

    def end_period(self, budget_id: UUID) -> None:
        """Move the current period of a budget, and the calls in it, far into the past."""
        for table in ("invocations", "usage_records"):
            self.calls.run(
                f"UPDATE {table} SET budgeted_at = budgeted_at - interval '60 days'"
                " WHERE CAST(:id AS uuid) = ANY (budget_ids)",
                id=budget_id,
            )
        self.calls.run(
            "UPDATE budgets SET starts_at = credits_period_start(period, starts_at - interval '60 days')"
            " WHERE id = :id",
            id=budget_id,
        )


@pytest.fixture
def limits(calls: Calls, factory: IdentityFactory) -> Limits:
    calls.top_up(1_000_000)
    member = factory.person(calls.organization_id)
    assert member.api_key_id is not None
    return Limits(calls=calls, user_id=member.user_id, key_id=member.api_key_id)


def test_a_hold_counts_against_each_budget_that_covers_the_call(limits: Limits) -> None:
    user, key = limits.create(100), limits.create(50, kind=SubjectKind.API_KEY, period=Period.DAY)
    other = limits.create(100, model="acme/two")
    limits.hold(30)
    assert (limits.figures(user), limits.figures(key), limits.figures(other)) == ((0, 30), (0, 30), (0, 0))
    with pytest.raises(BudgetExceeded) as refused:
        limits.hold(21)
    assert refused.value.data["budget_id"] == str(key)
    assert (refused.value.data["remaining"], refused.value.data["required"]) == ("0.00002", "0.000021")
    assert limits.calls.balance.held == 30
    assert limits.calls.discrepancies() == []


def test_a_settlement_moves_what_was_held_to_what_is_spent(limits: Limits) -> None:
    budget = limits.create(100)
    invocation_id, token = limits.dispatched(30)
    limits.calls.settle(invocation_id, token, 12)
    limits.calls.settle(invocation_id, token, 12)
    assert limits.figures(budget) == (12, 0)
    assert limits.calls.discrepancies() == []


def test_call_above_its_hold_is_charged_and_blocks_the_next_hold(limits: Limits) -> None:
    budget = limits.create(100)
    limits.calls.settle(*limits.dispatched(30), 130)
    assert limits.figures(budget) == (130, 0)
    assert limits.read(budget).remaining == 0
    with pytest.raises(BudgetExceeded):
        limits.hold(0)
    assert limits.calls.discrepancies() == []


def expire(limits: Limits) -> None:
    limits.calls.lose(limits.hold(30))
    limits.calls.lose(limits.hold(30))
    release_overdue_holds(limits.calls.database)


def die(limits: Limits) -> None:
    limits.calls.lose(limits.dispatched(30)[0], hours=30)
    mark_unresolved(limits.calls.database)
    settle_unresolved(limits.calls.database)


def repeat(limits: Limits) -> None:
    invocation_id = limits.hold(30)
    limits.hold(30, invocation_id=invocation_id)
    limits.calls.void(invocation_id)


@pytest.mark.parametrize(
    "end",
    [lambda limits: limits.calls.void(limits.hold(30)), expire, die, repeat],
    ids=["void", "expire", "die", "repeat"],
)
def test_a_call_that_consumed_nothing_gives_its_hold_back(
    limits: Limits, end: Callable[[Limits], object]
) -> None:
    budget = limits.create(100)
    end(limits)
    assert limits.figures(budget) == (0, 0)
    limits.hold(100)
    assert limits.calls.discrepancies() == []


def test_a_correction_of_an_estimate_corrects_the_budget(limits: Limits) -> None:
    budget = limits.create(100)
    invocation_id, token = limits.dispatched(30)
    limits.calls.settle(invocation_id, token, 20, is_estimated=True)
    limits.calls.settle(invocation_id, token, 5)
    assert limits.figures(budget) == (5, 0)
    assert limits.calls.discrepancies() == []


@pytest.mark.parametrize("period", [Period.DAY, Period.WEEK, Period.MONTH])
def test_a_call_belongs_to_the_period_in_which_it_was_held(limits: Limits, period: Period) -> None:
    budget = limits.create(100, period=period)
    limits.charge(20)
    invocation_id, token = limits.dispatched(80)
    with pytest.raises(BudgetExceeded):
        limits.hold(1)
    limits.end_period(budget)
    assert limits.figures(budget) == (0, 0)
    limits.hold(70)
    limits.calls.settle(invocation_id, token, 80, is_estimated=True)
    limits.calls.settle(invocation_id, token, 75)
    assert limits.figures(budget) == (0, 70)
    assert limits.calls.discrepancies() == []


def test_a_budget_without_a_period_never_begins_anew(limits: Limits) -> None:
    budget = limits.create(100)
    limits.charge(60)
    limits.end_period(budget)
    with pytest.raises(BudgetExceeded) as refused:
        limits.hold(41)
    assert (refused.value.retry_after_seconds, refused.value.data["resets_at"]) == (None, None)
    assert limits.figures(budget) == (60, 0)


def test_a_refusal_says_when_the_budget_resets(limits: Limits) -> None:
    limits.create(10, period=Period.DAY)
    with pytest.raises(BudgetExceeded) as refused:
        limits.hold(11)
    assert 1 <= (refused.value.retry_after_seconds or 0) <= 86_400
    assert str(refused.value.data["resets_at"]).endswith("T00:00:00Z")


def test_of_several_budgets_the_one_that_resets_last_is_named(limits: Limits) -> None:
    limits.create(10, period=Period.DAY)
    last = limits.create(10)
    with pytest.raises(BudgetExceeded) as refused:
        limits.hold(11)
    assert refused.value.data["budget_id"] == str(last)


def test_a_budget_counts_from_its_creation_on(limits: Limits) -> None:
    before = limits.dispatched(30)
    budget = limits.create(100)
    limits.hold(10)
    limits.calls.settle(*before, 30)
    assert limits.figures(budget) == (0, 10)
    assert limits.calls.discrepancies() == []


def test_open_calls_end_well_when_their_budget_is_deleted(limits: Limits) -> None:
    deleted, kept = limits.create(100), limits.create(100, kind=SubjectKind.API_KEY)
    call, waiting = limits.dispatched(30), limits.hold(10)
    limits.delete(deleted)
    limits.calls.settle(*call, 25)
    limits.calls.void(waiting)
    assert limits.figures(kept) == (25, 0)
    limits.delete(kept)
    limits.hold(500)
    assert limits.calls.discrepancies() == []


def test_budget_lowered_below_its_holds_refuses_until_they_are_released(limits: Limits) -> None:
    budget = limits.create(100)
    call = limits.dispatched(80)
    limits.change(budget, 50)
    with pytest.raises(BudgetExceeded):
        limits.hold(1)
    limits.calls.settle(*call, 10)
    limits.hold(40)
    assert limits.figures(budget) == (10, 40)
    assert limits.calls.discrepancies() == []


def test_a_users_budget_covers_all_keys_of_the_user(limits: Limits) -> None:
    budget = limits.create(100)
    limits.hold(40)
    limits.hold(40, attribution=replace(limits.attribution, api_key_id=uuid4()))
    limits.hold(40, attribution=Attribution(user_id=uuid4()))
    with pytest.raises(BudgetExceeded):
        limits.hold(40)
    assert limits.figures(budget) == (0, 80)


def test_identity_budget_counts_executed_and_received_calls_once(
    limits: Limits, factory: IdentityFactory
) -> None:
    identity = factory.principal(limits.calls.organization_id).id
    budget = limits.create(100, kind=SubjectKind.IDENTITY, subject_id=identity)
    limits.hold(10, attribution=Attribution(identity_id=identity))
    limits.hold(20, attribution=Attribution(identity_id=uuid4(), principal_id=identity))
    limits.hold(30, attribution=Attribution(identity_id=identity, principal_id=identity))
    assert limits.figures(budget) == (0, 60)


@pytest.mark.parametrize("unit", [Unit.REQUESTS, Unit.TOKENS])
def test_requests_and_tokens_are_limited_for_a_minute(limits: Limits, unit: Unit) -> None:
    a_call = 1 if unit is Unit.REQUESTS else 10

    def use_up_and_go_on() -> tuple[tuple[int, int], RateLimitExceeded | None, tuple[int, int]]:
        budget = limits.create(2 * a_call, kind=SubjectKind.API_KEY, unit=unit, period=Period.MINUTE)
        limits.hold(0, held_tokens=10)
        limits.calls.settle(*limits.dispatched(0, held_tokens=10), 10)
        used, refused = limits.figures(budget), None
        try:
            limits.hold(0, held_tokens=10)
        except RateLimitExceeded as error:
            refused = error
        limits.end_period(budget)
        limits.hold(0, held_tokens=10)
        anew = limits.figures(budget)
        limits.delete(budget)
        return used, refused, anew

    used, refused, anew = limits.within_a_minute(use_up_and_go_on)
    assert used == (a_call, a_call)
    assert refused is not None
    assert 1 <= (refused.retry_after_seconds or 0) <= 60
    assert not refused.is_final
    assert anew == (0, a_call)
    assert limits.calls.discrepancies() == []


def test_call_above_the_token_limit_of_a_minute_is_refused_finally(limits: Limits) -> None:
    limits.create(9, unit=Unit.TOKENS, period=Period.MINUTE)
    with pytest.raises(RateLimitExceeded) as refused:
        limits.hold(0, held_tokens=10)
    assert refused.value.is_final


def test_a_key_calls_only_the_models_that_it_may(limits: Limits) -> None:
    organization_id = limits.calls.organization_id
    with limits.calls.database.transaction() as session:
        set_key_models(
            session,
            actor=OPERATOR,
            organization_id=organization_id,
            key_id=limits.key_id,
            models=("acme/two",),
        )
    with pytest.raises(ModelNotAllowed):
        limits.hold(1)
    limits.hold(1, model="acme/two")
    limits.hold(1, attribution=replace(limits.attribution, api_key_id=uuid4()))
    with limits.calls.database.transaction() as session:
        remove_key_models(session, actor=OPERATOR, organization_id=organization_id, key_id=limits.key_id)
    limits.hold(1)
    assert limits.calls.discrepancies() == []


def test_racing_calls_never_exceed_a_budget(limits: Limits) -> None:
    budget = limits.create(1000)
    day = limits.create(990, kind=SubjectKind.API_KEY, period=Period.DAY)
    # So that the day does not end meanwhile: a budget whose period begins later counts in that one already.
    limits.calls.run("UPDATE budgets SET starts_at = starts_at + interval '1 day' WHERE id = :id", id=day)

    def admit(_: int) -> int:
        admitted = 0
        while True:
            try:
                limits.hold(10)
            except BudgetExceeded:
                return admitted
            admitted += 1

    assert sum(run_concurrently(admit)) == 99
    assert (limits.figures(budget), limits.figures(day)) == ((0, 990), (0, 990))
    assert limits.calls.discrepancies() == []


def test_budget_created_during_concurrent_calls_counts_all_later_calls(limits: Limits) -> None:
    """Calls that waited for the balance while the budget was created are counted too."""

    def work(number: int) -> int:
        if number == 0:
            limits.create(100)
            return 0
        admitted = 0
        for _ in range(30):
            try:
                limits.calls.settle(*limits.dispatched(10), 10)
                admitted += 1
            except BudgetExceeded:
                break
        return admitted

    run_concurrently(work)
    assert limits.calls.discrepancies() == []


def test_holds_settlements_sweeps_and_budget_changes_never_deadlock(limits: Limits) -> None:
    ids = [
        limits.create(100_000),
        limits.create(100_000, kind=SubjectKind.API_KEY),
        limits.create(100_000, kind=SubjectKind.API_KEY, period=Period.DAY),
    ]

    def work(number: int) -> None:
        for turn in range(10):
            match number % 4:
                case 0:
                    limits.charge(number)
                case 1:
                    limits.calls.void(limits.hold(number))
                case 2:
                    limits.calls.lose(limits.hold(number))
                    release_overdue_holds(limits.calls.database)
                case _:
                    limits.change(ids[turn % 3], 100_000 + turn)

    run_concurrently(work)
    assert {limits.figures(budget_id)[1] for budget_id in ids} == {0}
    assert limits.calls.discrepancies() == []


def test_invalid_budget_is_refused(limits: Limits, factory: IdentityFactory) -> None:
    limits.create(100)
    with pytest.raises(AlreadyExists):
        limits.create(200)
    with pytest.raises(ValidationFailed):
        limits.create(100, period=Period.MINUTE)
    with pytest.raises(ValidationFailed):
        limits.create(100, unit=Unit.TOKENS, period=Period.DAY)
    stranger = factory.person(factory.organization().id)
    for kind in SubjectKind:
        with pytest.raises(ResourceNotFound):
            limits.create(1, kind=kind, subject_id=stranger.user_id)


def test_a_budget_that_does_not_agree_with_the_calls_is_found(limits: Limits) -> None:
    budget = limits.create(100)
    limits.charge(10)
    limits.hold(5)
    limits.calls.run("UPDATE budgets SET spent = 9, held = 4 WHERE id = :id", id=budget)
    limits.calls.run(
        "UPDATE credit_balances SET limits = 2 WHERE organization_id = :id", id=limits.calls.organization_id
    )
    assert limits.calls.discrepancies() == ["budget_held", "budget_spent", "limits"]


def test_an_organization_has_so_many_limits_and_no_more(limits: Limits) -> None:
    before = "UPDATE credit_balances SET limits = :count WHERE organization_id = :id"
    limits.calls.run(before, count=budgets.MAX_LIMITS - 1, id=limits.calls.organization_id)
    last = limits.create(100)
    with pytest.raises(TooManyLimits):
        limits.create(100, kind=SubjectKind.API_KEY)
    limits.change(last, 200)
    limits.delete(last)
    limits.create(100, kind=SubjectKind.API_KEY)
