"""Clients of budgets: some share a budget, some change limits during use, and some own budgets exclusively."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from tests.chaos.budgets.calls import LIMITING, REFUSED_SECONDS, WHO, Credential, LimitedClient
from tests.chaos.budgets.limits import PLENTY, Administration, Budget, Figures, Limit, Terms
from tests.chaos.budgets.spending import PRICES, ClientSpending
from tests.chaos.installation import Installation
from tests.chaos.models.calls import CallResult, Verdict
from tests.chaos.retrying_client import recording_failure
from tests.support.data.inventory import query

RAISED = (200, 3_000)
"""An amount, or by how much one is raised."""
LAST_PIECES = 20
_PERIODS = ("once", "day", "week", "month")


class Spender(LimitedClient):
    """A client that spends the remainder of a budget concurrently with others."""

    def __init__(
        self, installation: Installation, name: str, spending: ClientSpending, credential: Credential
    ) -> None:
        super().__init__(installation, name, spending)
        self._credential = credential

    def act(self) -> None:
        """Make a call."""
        result = self.call(self._credential, self.plan())
        if result.verdict is not Verdict.COMPLETED:
            time.sleep(REFUSED_SECONDS)


class LimitChanger(LimitedClient):
    """A client that raises, lowers and reads limits that many clients spend under.

    While an amount is unchanged, use grows only within it; use beyond a lowered amount can only decrease. The
    comparison at the end (`excess`) checks any further overrun, because the correction of an estimate may cause one.
    With link strikes, a repeated change may be applied late and revert the next one.
    """

    def __init__(
        self,
        installation: Installation,
        spending: ClientSpending,
        limits: Sequence[Limit],
        credentials: Mapping[Limit, Credential],
    ) -> None:
        super().__init__(installation, "budgets/changer", spending)
        self.limits = limits
        self._credentials = credentials
        self._bounds = {limit: limit.amount for limit in limits}
        self._stack = installation.stack
        self._is_strict = not installation.loses_links
        self.excess: Counter[Limit] = Counter()
        self.highest = {limit: limit.amount for limit in limits}
        self.ended_at: datetime | None = None
        """When all was spent that these were the highest amounts for, by the database's clock."""

    def act(self) -> None:
        """Change a limit, or read it."""
        limit = self.random.choice(self.limits)
        raised = limit.amount + self.random.randint(*RAISED)
        if limit.unit == "credits" and self.random.random() < 0.5:
            amounts = {raised: 6, max(0, limit.amount - raised // 3): 1, 0: 1}
            self._change(limit, self.random.choices(list(amounts), list(amounts.values()))[0])
        self._look_at(limit)

    def verify(self) -> None:
        """Check that no hold is left, and that each limit permits exactly its remainder, to the unit."""
        with recording_failure(self.observations, WHO):
            self._verify()

    def _change(self, limit: Limit, amount: int) -> None:
        self._bounds[limit] = max(self._bounds[limit], amount)
        limit.set_amount(amount)

    def _look_at(self, limit: Limit) -> Figures:
        figures = limit.read()
        self.observations.count_read(f"limit of {limit.unit}")
        if self._is_strict and figures.amount != limit.amount:
            self.observations.violate(f"a change is not in force: {limit} has {figures}, not {limit.amount}")
        if limit.unit != "tokens":  # A hold only estimates tokens, so their use may exceed the amount.
            self.excess[limit] += max(0, figures.used - self._bounds[limit])
            possible = limit.amount if self._is_strict else max(limit.amounts)
            self._bounds[limit] = max(possible, figures.used)
        return figures

    def _verify(self) -> None:
        ((self.ended_at,),) = query(self._stack, "SELECT now()")
        self.highest = {limit: max(limit.amounts) for limit in self.limits}
        for limit in self.limits:
            if (figures := self._look_at(limit)).held:
                self.observations.violate(f"a hold is left: {limit} has {figures}, and nothing is at work")
            limit.set_amount(PLENTY)
        for limit in self.limits:
            self._spend_to_the_unit(limit, self._credentials[limit])

    def _spend_to_the_unit(self, limit: Limit, credential: Credential) -> None:
        model = limit.terms.model if isinstance(limit, Budget) else None
        model = model or self.random.choice(list(PRICES))
        if limit.unit == "credits":
            before = limit.read()
            limit.set_amount(before.spent + LAST_PIECES * PRICES[model])
            self._expect(limit, self.call_now(credential, model, LAST_PIECES), is_refused=False)
            after = limit.read()
            if (after.spent, after.held) != (after.amount, 0):
                self.observations.violate(
                    f"{limit} was to be spent to the unit, and has {after} after {before}"
                )
            self._expect(limit, self.call_now(credential, model, 1), is_refused=True)
            limit.set_amount(PLENTY)
        self._expect(limit, self.call_now(credential, model, LAST_PIECES), is_refused=False)

    def _expect(self, limit: Limit, result: CallResult, *, is_refused: bool) -> None:
        if (result.code in limit.refusals) is not is_refused:
            self.observations.violate(f"with {limit.amount} at the end {limit} answers {result}")


class OwnBudgetClient(LimitedClient):
    """A client with exclusive budgets: it knows the amount in force at each call.

    With link strikes it does not know, because a change may be applied late.
    """

    def __init__(
        self,
        installation: Installation,
        name: str,
        spending: ClientSpending,
        credential: Credential,
        by: Administration,
    ) -> None:
        super().__init__(installation, name, spending)
        self._credential = credential
        self._by = by

    def act(self) -> None:
        """Create a budget, spend, lower it to zero, raise it, and delete it."""
        subject = self.random.choice(self._credential.budgeted)
        model = self.random.choice((None, *PRICES))
        terms = Terms(subject=subject, period=self.random.choice(_PERIODS), model=model)
        budget = Budget(self._by, terms, self.random.randint(*RAISED))
        self._credential.limits.append(budget)
        for _ in range(self.random.randint(1, 3)):
            self.call(self._credential, self.plan())
        budget.set_amount(0)
        self._call_in_vain(budget)
        budget.set_amount(PLENTY)
        self._call_freely(f"{budget} of plenty")
        budget.delete()
        self._credential.limits.remove(budget)
        self._call_freely(f"{budget}, which is deleted,")

    def _call_in_vain(self, budget: Budget) -> None:
        """Make a call that must be refused.

        A call without a response may be admitted once the budget is raised again.
        """
        planned_call = self.plan(tuple(PRICES) if budget.terms.model is None else (budget.terms.model,))
        result = self.call(self._credential, planned_call)
        if result.status is not None:
            self.forbid(planned_call, f"its budget of nothing covers ({result.code})")
        if result.verdict is Verdict.COMPLETED:
            self.observations.violate(
                f"a change is not in force: {budget} is of nothing, and a call is {result}"
            )

    def _call_freely(self, why: str) -> None:
        result = self.call(self._credential, self.plan())
        if result.code in LIMITING:
            self.observations.violate(f"a change is not in force: {why} refused a call: {result}")
