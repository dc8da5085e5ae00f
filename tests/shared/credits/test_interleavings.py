"""Random interleavings of calls, crashes, top-ups, policies and sweeps, compared with an oracle without SQL."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from shared.credits.balances import Policy
from shared.credits.errors import (
    CreditPolicySuspended,
    InsufficientCredits,
    ReferenceConflict,
    SettlementRefused,
)
from shared.credits.sweeps import mark_unresolved, release_overdue_holds, settle_unresolved
from shared.credits.usage.rollups import roll_up_usage
from shared.credits.usage.usage_query import Dimension
from shared.credits.usage.usage_reports import UsageCriteria, Window, usage
from shared.db.database import Database
from tests.shared.credits.calls import Calls
from tests.support.data.identity import IdentityFactory, make_settings

TOKENS = st.integers(0, 30)
ROLL_UP_ALL = timedelta()
# Suspension stops everything, so it comes seldom.
POLICIES = [Policy.ACTIVE] * 4 + [Policy.LIMIT] * 3 + [Policy.SUSPENDED]
OPEN = frozenset({"held", "dispatched", "unresolved"})


@dataclass
class Invocation:
    """The oracle's state of a call; `is_lost` is the number of hours since its lease ended."""

    id: UUID
    hold: int
    estimate: int
    state: str = "held"
    token: UUID | None = None
    streamed: int = 0
    lost_hours: int | None = None
    charged: int | None = None
    is_estimated: bool = False
    is_corrected: bool = False


class Interleavings(RuleBasedStateMachine):
    """The operations on one organization."""

    database: Database
    factory: IdentityFactory

    calls_made = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.calls = Calls(self.database, self.factory.organization().id)
        self.invocations: list[Invocation] = []
        self.references: dict[str, int] = {}
        self.policy, self.overdraft, self.limit = Policy.ACTIVE, 0, 0

    @property
    def spent(self) -> int:
        return sum(at.charged or 0 for at in self.invocations)

    @property
    def posted(self) -> int:
        return sum(self.references.values()) - self.spent

    @property
    def held(self) -> int:
        return sum(at.hold for at in self.invocations if at.state in OPEN)

    @property
    def available(self) -> int:
        free = self.posted + self.overdraft - self.held
        if self.policy is Policy.LIMIT:
            return min(free, self.limit - self.spent - self.held)
        return free if self.policy is Policy.ACTIVE else min(0, free)

    @initialize()
    def start_with_credits(self) -> None:
        """Start with credits, because most operations would be refused otherwise."""
        self.top_up(300, "beginning")

    @rule(amount=st.integers(1, 200), reference=st.sampled_from("abcdefgh"))
    def top_up(self, amount: int, reference: str) -> None:
        try:
            entered = self.calls.top_up(amount, reference)
        except ReferenceConflict:
            assert self.references.get(reference, amount) != amount
        else:
            assert entered.is_replayed is (reference in self.references)
            assert self.references.setdefault(reference, amount) == amount

    @rule(policy=st.sampled_from(POLICIES), overdraft=st.integers(0, 50), limit=st.integers(0, 300))
    def set_policy(self, policy: Policy, overdraft: int, limit: int) -> None:
        self.calls.set_policy(
            policy, overdraft=overdraft, spending_limit=limit if policy is Policy.LIMIT else None
        )
        self.policy, self.overdraft, self.limit = policy, overdraft, limit

    @rule(target=calls_made, amount=TOKENS, estimate=TOKENS)
    def wait(self, amount: int, estimate: int) -> Invocation | None:
        return self._hold(amount, estimate)

    @rule(target=calls_made, amount=TOKENS, estimate=TOKENS, streamed=TOKENS)
    def start(self, amount: int, estimate: int, streamed: int) -> Invocation | None:
        """Hold, dispatch and start to stream, as most calls do."""
        call = self._hold(amount, estimate)
        self.dispatch(call)
        self.note_streamed(call, streamed)
        return call

    def _hold(self, amount: int, estimate: int) -> Invocation | None:
        is_affordable = self.policy is not Policy.SUSPENDED and self.available >= amount
        try:
            invocation_id = self.calls.hold(amount, prompt_tokens=estimate)
        except InsufficientCredits:
            assert not is_affordable
            return None
        except CreditPolicySuspended:
            assert self.policy is Policy.SUSPENDED
            return None
        assert is_affordable
        self.invocations.append(Invocation(id=invocation_id, hold=amount, estimate=estimate))
        assert self.available >= 0
        return self.invocations[-1]

    @rule(call=calls_made)
    def dispatch(self, call: Invocation | None) -> None:
        if call is None:
            return
        taken = self.calls.dispatch(call.id)
        assert (taken is not None) is (call.state == "held" and call.lost_hours is None)
        if taken is not None:
            call.state, call.token = "dispatched", taken.token

    @rule(call=calls_made, tokens=TOKENS)
    def note_streamed(self, call: Invocation | None, tokens: int) -> None:
        if call is None or call.token is None:
            return
        is_running = call.state in ("dispatched", "unresolved")
        assert self.calls.note_streamed(call.id, call.token, tokens) is is_running
        if is_running:
            call.streamed, call.lost_hours = max(call.streamed, tokens), None

    @rule(call=calls_made, tokens=st.none() | TOKENS, is_estimated=st.booleans())
    def settle(self, call: Invocation | None, tokens: int | None, is_estimated: bool) -> None:
        if call is None:
            return
        try:
            settled = self.calls.settle(call.id, call.token or uuid4(), tokens, is_estimated=is_estimated)
        except SettlementRefused:
            assert call.token is None
            return
        assert call.token is not None
        is_exact = tokens is not None and not is_estimated
        if call.state != "settled":
            self._charge(call, tokens)
            call.is_estimated = not is_exact
        elif call.is_estimated and is_exact:
            call.charged, call.is_estimated, call.is_corrected = tokens, False, True
        assert (settled.cost, settled.is_estimated) == (call.charged, call.is_estimated)
        assert settled.balance == self.posted

    @rule(call=calls_made, guess=st.none() | TOKENS, tokens=TOKENS)
    def correct_estimate(self, call: Invocation | None, guess: int | None, tokens: int) -> None:
        """Settle by estimate, and later by the provider's counts."""
        self.settle(call, guess, is_estimated=True)
        self.settle(call, tokens, is_estimated=False)

    @rule(call=calls_made)
    def void(self, call: Invocation | None) -> None:
        if call is not None:
            assert self.calls.void(call.id) is (call.state == "held")
            call.state = "voided" if call.state == "held" else call.state

    @rule(call=consumes(calls_made), hours=st.sampled_from([0, 30]))
    def abandon(self, call: Invocation | None, hours: int) -> None:
        """Stop working on this call for good."""
        if call is not None:
            self.expire_lease(call, hours)

    @rule(call=calls_made, hours=st.sampled_from([0, 30]))
    def expire_lease(self, call: Invocation | None, hours: int) -> None:
        """End the lease of a call whose worker may still return."""
        if call is not None:
            self.calls.lose(call.id, hours=hours)
            call.lost_hours = hours

    @rule(call=calls_made)
    def let_a_day_pass(self, call: Invocation | None) -> None:
        """Let a day pass without a renewal."""
        self.expire_lease(call, 30)
        self.sweep_leases()
        self.settle_unresolved()

    @rule()
    def sweep_leases(self) -> None:
        release_overdue_holds(self.database)
        mark_unresolved(self.database)
        for call in self.invocations:
            if call.lost_hours is not None:
                call.state = {"held": "expired", "dispatched": "unresolved"}.get(call.state, call.state)

    @rule()
    def settle_unresolved(self) -> None:
        settle_unresolved(self.database)
        for call in self.invocations:
            if call.state == "unresolved" and (call.lost_hours or 0) >= 24:
                self._charge(call, None if call.streamed else 0)
                call.is_estimated = True

    @rule()
    def roll_up(self) -> None:
        # Leave nothing to the records, so that what a correction does to a rolled up hour shows.
        roll_up_usage(self.database, slack=ROLL_UP_ALL)

    @invariant()
    def balances_are_as_the_oracle_says(self) -> None:
        found = self.calls.balance
        assert (found.balance, found.held, found.available) == (self.posted, self.held, self.available)
        assert found.spent == self.spent

    @rule()
    def look_at_everything(self) -> None:
        for call in self.invocations:
            assert self.calls.state(call.id) == call.state
        assert self.calls.discrepancies() == []
        with self.database.autocommit() as session:
            report = usage(
                session,
                self.calls.organization_id,
                UsageCriteria(window=Window.DAY, group_by=(Dimension.MODEL,)),
            )
        settled = [call for call in self.invocations if call.charged is not None]
        assert (report.total.invocations, report.total.cost) == (len(settled), self.spent)

    def teardown(self) -> None:
        self.look_at_everything()

    def _charge(self, call: Invocation, tokens: int | None) -> None:
        call.state = "settled"
        call.charged = call.estimate + call.streamed if tokens is None else tokens


def test_money_is_exact_whatever_happens_in_whatever_order(database: Database) -> None:
    Interleavings.database = database
    Interleavings.factory = IdentityFactory(database, make_settings())
    run_state_machine_as_test(
        Interleavings,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
