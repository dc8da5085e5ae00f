"""The workload of budgets: it compares the reported use of each budget with what was charged.

The use of a budget is compared with the usage records that name its subject, without reading their budget columns, and
with the clients' own account. It may exceed every amount that was set, by the sum of its corrections: the estimate had
released that part (docs/specification/budgets.md#counting).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from tests.chaos.background_work import CREDITS
from tests.chaos.budgets.clients import LimitChanger, OwnBudgetClient, Spender
from tests.chaos.budgets.limits import Budget
from tests.chaos.budgets.spending import PRICES, ClientSpending, NotedUpstream
from tests.chaos.budgets.subjects import Subjects
from tests.chaos.installation import Installation
from tests.chaos.models.catalog import offer
from tests.chaos.models.reconciliation import Reconciliation
from tests.chaos.workload import Person, Workload
from tests.support.data.inventory import query
from tests.support.models.catalog_text import model_text

OWN_BUDGET_CLIENTS = 2
CATALOG = '[providers.limited]\nbase_url = "ADDRESS"\nidle_timeout_seconds = 3.0\n' + "".join(
    model_text(
        model,
        f'provider = "limited", model = "upstream-model", dialect = "{model.partition("/")[2]}"',
        prompt="0",
        completion=str(price),
        retries=0,
        deadline_seconds=20.0,
    )
    for model, price in PRICES.items()
)
# Select by the columns that name the subject, independently of the records' budget columns.
_SPENT = """
SELECT b.spent, b.held, (
    SELECT coalesce(sum(CASE b.unit WHEN 'credits' THEN u.cost WHEN 'requests' THEN 1
        ELSE u.prompt_tokens + u.completion_tokens END), 0)::bigint
    FROM usage_records u
    WHERE b.subject_id IN (u.api_key_id, u.user_id, u.identity_id, u.principal_id, u.deployment_id)
        AND (b.model IS NULL OR u.model = b.model) AND u.budgeted_at >= b.starts_at
)
FROM budgets b WHERE b.id = %s
"""
# A call may consume more tokens than it held; the difference is owed.
_MOST_USED = """
SELECT coalesce(max(used), 0)::bigint FROM (
    SELECT sum(CASE b.unit WHEN 'credits' THEN u.cost WHEN 'requests' THEN 1
        ELSE least(i.held_tokens, u.prompt_tokens + u.completion_tokens) END) AS used
    FROM budgets b, usage_records u JOIN invocations i ON i.id = u.invocation_id
    WHERE b.id = %s AND b.subject_id IN (u.api_key_id, u.user_id, u.identity_id, u.principal_id, u.deployment_id)
        AND (b.model IS NULL OR u.model = b.model) AND u.budgeted_at < %s
    GROUP BY CASE b.period WHEN 'once' THEN NULL ELSE date_trunc(b.period, u.budgeted_at, 'UTC') END
) AS periods
"""
_CORRECTED = """
SELECT coalesce(sum(-amount) FILTER (WHERE amount < 0), 0)::bigint FROM ledger_entries
WHERE kind = 'correction' AND organization_id = %s
"""


class Budgets(Workload):
    """Calls of keys, users, identities and a deployment under budgets, and of an organization with a spending limit."""

    workers = {"models": 2, "background": 1, "ledger": 1}  # noqa: RUF012
    waiting = (CREDITS,)

    def __init__(self, installation: Installation, closing: ExitStack) -> None:
        self._installation = installation
        self._upstream = closing.enter_context(NotedUpstream())
        self._spending = ClientSpending()
        offer(installation.stack, CATALOG.replace("ADDRESS", self._upstream.base_url))

    def begin(self) -> Sequence[Person]:
        at, spending = self._installation, self._spending
        subjects = Subjects(at)
        self._changer = LimitChanger(at, spending, subjects.limits, subjects.payers)
        spenders = [
            Spender(at, f"budgets/spender/{number}", spending, credential)
            for number, credential in enumerate(subjects.spending)
        ]
        alone = [
            OwnBudgetClient(at, f"budgets/own/{number}", spending, *subjects.own_budget())
            for number in range(0 if at.loses_links else OWN_BUDGET_CLIENTS)
        ]
        return [self._changer, *spenders, *alone]

    def compare(self) -> Iterator[str]:
        at, upstream = self._installation, self._upstream
        served, calls = upstream.served, self._spending.log.calls
        books = Reconciliation(at.stack, calls, served, family="limited/", loses_reports=at.loses_links)
        yield from books.compare({})
        yield from self._spending.compare(upstream.asked)
        for limit in self._changer.limits:
            corrected = self._ask(_CORRECTED, limit.organization_id)[0]
            if (excess := self._changer.excess[limit]) > corrected:
                yield f"exceeded: {limit} by {excess}, and corrections added {corrected}"
            if isinstance(limit, Budget):
                yield from self._compare_budget(limit, corrected)

    def _compare_budget(self, budget: Budget, corrected: int) -> Iterator[str]:
        terms = budget.terms
        spent, held, charged = self._ask(_SPENT, budget.id)
        if (spent, held) != (charged, 0):
            yield f"{budget} says that {spent} is spent and {held} held; its calls were charged {charged}"
        (used,) = self._ask(_MOST_USED, budget.id, self._changer.ended_at)
        if used > self._changer.highest[budget] + corrected:
            yield f"exceeded: {budget} by calls of {used}; it was never more than {self._changer.highest[budget]}"
        if terms.period == "once":
            least, most = self._spending.spent_by(terms.subject.id, terms.model, self._upstream.asked)
            if not least <= spent <= most:
                yield f"{budget} says that {spent} is spent; by its clients it is from {least} to {most}"

    def _ask(self, statement: str, *parameters: object) -> tuple[Any, ...]:
        (row,) = query(self._installation.stack, statement, parameters)
        return tuple(row)
