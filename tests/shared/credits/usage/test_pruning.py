"""Old usage records are pruned, and every sum that was ever reported stays the same."""

from collections.abc import Iterator
from datetime import UTC, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from deploy.embedded.postgres import EmbeddedPostgres
from shared.credits.errors import SettlementRefused
from shared.credits.holds import Attribution
from shared.credits.key_usage import sum_spent
from shared.credits.ledger import list_entries
from shared.credits.prices import TokenCounts
from shared.credits.settlement import Effect, Outcome, Status, settle
from shared.credits.spending_limits.budgets import (
    NewBudget,
    Period,
    SubjectKind,
    Unit,
    create_budget,
    list_budgets,
)
from shared.credits.sweeps import purge_invocations
from shared.credits.usage import pruning
from shared.credits.usage.pruning import prune_usage
from shared.credits.usage.rollups import roll_up_usage
from shared.credits.usage.usage_query import Dimension, Interval
from shared.credits.usage.usage_records import list_usage_records
from shared.credits.usage.usage_reports import UsageCriteria, UsageReport, Window, usage
from shared.db.database import Database
from shared.errors import ValidationFailed
from shared.identity.access.authorization import OPERATOR
from shared.ids import new_id
from shared.messaging.queues import LEDGER
from shared.runtime.batches import budget
from tests.shared.credits.calls import Calls
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.data.moved_clock import MovedClock
from tests.support.processes.bound_worker import bound_worker
from tests.support.processes.simulated_deaths import Died, die_once

KEPT = timedelta(days=35)
MONTH = timedelta(days=40)


@pytest.fixture(scope="module")
def clock(postgres_server: EmbeddedPostgres, database: Database) -> MovedClock:
    return MovedClock(postgres_server, database)


MANY = """
INSERT INTO usage_records (invocation_id, organization_id, model, prompt_tokens, completion_tokens, cached_tokens,
    reasoning_tokens, cost, status, is_estimated, occurred_at)
SELECT gen_random_uuid(), :id, 'acme/many', 0, 0, 0, 0, 0, 'completed', false, now() - make_interval(secs => at)
FROM generate_series(1, :count) AS at
"""


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all nodes of a query plan."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def age(clock: MovedClock, database: Database, by: timedelta) -> None:
    """Move all times into the past and run the sweeps."""
    clock.move(by)
    purge_invocations(database)
    roll_up_usage(database)


class History:
    """Calls of three days by two keys and models under budgets, and all reports about them."""

    def __init__(self, clock: MovedClock, calls: Calls, factory: IdentityFactory) -> None:
        self.clock = clock
        self.calls = calls
        self.starts_at = clock.now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        person = factory.person(calls.organization_id)
        self.attribution = Attribution(user_id=person.user_id)
        calls.top_up(1_000_000)
        with calls.database.transaction() as session:
            for unit, period in ((Unit.CREDITS, Period.ONCE), (Unit.CREDITS, Period.MONTH)):
                new = NewBudget(
                    subject_kind=SubjectKind.USER,
                    subject_id=person.user_id,
                    unit=unit,
                    period=period,
                    amount=10**6,
                )
                create_budget(session, actor=OPERATOR, organization_id=calls.organization_id, new=new)

    def live(self) -> None:
        for number in range(1, 7):
            self.calls.charge(number, model="acme/one", attribution=self.attribution)
            self.calls.charge(10 * number, model="acme/two")
            self.clock.move(timedelta(hours=11, minutes=7))

    def age(self, by: timedelta = MONTH) -> None:
        age(self.clock, self.calls.database, by)

    def report(self, criteria: UsageCriteria) -> UsageReport:
        with self.calls.database.transaction() as session:
            return usage(session, self.calls.organization_id, criteria)

    def all_reports(self) -> list[Any]:
        """Return all reports, the ledger, the budgets and the spent amounts."""
        starts_at, ends_at = self.starts_at, self.starts_at + timedelta(days=5)
        organization_id = self.calls.organization_id
        shown: list[Any] = [
            (report.total, report.groups)
            for group_by in ((), (Dimension.MODEL,), (Dimension.PRINCIPAL, Dimension.MODEL))
            for interval in (None, Interval.HOUR, Interval.DAY)
            for report in [
                self.report(
                    UsageCriteria(starts_at=starts_at, ends_at=ends_at, group_by=group_by, interval=interval)
                )
            ]
        ]
        with self.calls.database.transaction() as session:
            entries = list_entries(session, actor=OPERATOR, organization_id=organization_id, limit=100).items
            budgets = list_budgets(session, actor=OPERATOR, organization_id=organization_id)
            spent = sum_spent(session, organization_id, api_key_id=organization_id)
        return [*shown, entries, [at.spent for at in budgets.items], spent.usage]

    def records(self) -> int:
        with self.calls.database.transaction() as session:
            return len(list_usage_records(session, self.calls.organization_id, limit=100).items)


@pytest.fixture
def history(clock: MovedClock, calls: Calls, factory: IdentityFactory) -> Iterator[History]:
    age(clock, calls.database, MONTH)
    prune_usage(calls.database, kept=KEPT)  # what the test before has left
    history = History(clock, calls, factory)
    history.live()
    yield history
    assert calls.discrepancies() == []


def test_no_sum_changes_when_records_go(history: History) -> None:
    history.age()
    before = history.all_reports()
    assert (history.calls.discrepancies(), history.records()) == ([], 12)
    assert prune_usage(history.calls.database, kept=KEPT) == 12
    assert history.records() == 0
    assert history.all_reports() == before
    history.calls.charge(7, attribution=history.attribution)
    assert history.calls.discrepancies() == []
    assert history.report(UsageCriteria(window=Window.MONTH)).total.cost == 7
    assert prune_usage(history.calls.database, kept=KEPT) == 0


def test_pruning_killed_before_the_first_batch_is_completed_by_the_next_run(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.age()
    before = history.all_reports()
    with monkeypatch.context() as patch:
        die_once(patch, "usage.pruning")
        with pytest.raises(Died):
            prune_usage(history.calls.database, kept=KEPT)
    assert (history.all_reports(), history.calls.discrepancies(), history.records()) == (before, [], 12)
    assert prune_usage(history.calls.database, kept=KEPT) == 12
    assert (history.all_reports(), history.calls.discrepancies()) == (before, [])


def test_records_younger_than_they_are_kept_stay(history: History) -> None:
    history.age(timedelta(days=34))
    assert prune_usage(history.calls.database, kept=KEPT) == 8
    assert history.records() == 4


def test_records_are_pruned_by_age_and_not_by_id(history: History) -> None:
    """The id of an agent's call does not follow time: it is derived from its turn's."""
    for _ in range(4):
        history.calls.charge(1, invocation_id=uuid4())
    history.age()
    young = [UUID(int=1), new_id(), uuid4()]
    for invocation_id in young:
        history.calls.charge(1, invocation_id=invocation_id)
    assert prune_usage(history.calls.database, kept=KEPT) == 16
    with history.calls.database.transaction() as session:
        kept = list_usage_records(session, history.calls.organization_id).items
    assert [at.invocation_id for at in kept] == young[::-1]


def test_pruning_costs_what_it_prunes(history: History) -> None:
    """Pruning reads only the due records of an organization, by an index in the order of time."""
    with history.calls.database.transaction() as session:
        session.execute(text(MANY), {"id": str(history.calls.organization_id), "count": 3000})
        session.execute(text("ANALYZE usage_records"))
        session.execute(pruning._MOVE_MARK, {"kept": KEPT})
        pruned = f"EXPLAIN (ANALYZE, FORMAT JSON) {pruning._PRUNE.text}"
        plan = session.execute(text(pruned), {"since": UUID(int=0), "limit": 500}).scalar_one()[0]["Plan"]
        read = [at for at in nodes(plan) if at.get("Alias") == "r"]
        assert [at.get("Index Name") for at in read] == ["ix_usage_records_page"], plan
        assert sum(at["Actual Rows"] * at["Actual Loops"] for at in read) == 0, plan
        session.execute(text("DELETE FROM usage_records WHERE model = 'acme/many'"))


def test_a_correction_of_what_may_be_pruned_changes_nothing(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its hour would be recomputed from the remaining records."""
    monkeypatch.setattr(pruning, "BATCH_SIZE", 12)
    late = [history.calls.dispatched(5) for _ in range(2)]
    for call in late:
        history.calls.settle(*call, 3, is_estimated=True)
    history.clock.move(MONTH)  # and what purges calls did not run
    roll_up_usage(history.calls.database)
    before = history.all_reports()
    with budget(0):
        assert prune_usage(history.calls.database, kept=KEPT) == 12
    answers = [history.calls.settle(*call, 5) for call in late]
    assert [(at.effect, at.cost, at.is_estimated) for at in answers] == [(Effect.REPEATED, 3, True)] * 2
    assert (history.all_reports(), history.calls.discrepancies()) == (before, [])
    assert prune_usage(history.calls.database, kept=KEPT) == 2
    with pytest.raises(SettlementRefused):
        history.calls.settle(*late[0], 5)
    assert (history.all_reports(), history.calls.discrepancies()) == (before, [])


def test_the_mark_waits_for_a_correction_behind_which_it_would_move(history: History) -> None:
    call = history.calls.dispatched(5)
    history.calls.settle(*call, 3, is_estimated=True)
    history.clock.move(MONTH)
    roll_up_usage(history.calls.database)
    exact = Outcome(
        status=Status.COMPLETED, counts=TokenCounts(prompt_tokens=5, completion_tokens=0), provider="test"
    )
    with history.calls.database.transaction() as session:
        assert settle(session, *call, exact).effect is Effect.CORRECTED
        with history.calls.database.transaction() as other:
            free = "SELECT count(*) FROM (SELECT FROM usage_rollup FOR UPDATE SKIP LOCKED) AS mark"
            assert other.execute(text(free)).scalar_one() == 0
    assert prune_usage(history.calls.database, kept=KEPT) == 13


def test_interrupted_pruning_continues_and_stays_consistent(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "BATCH_SIZE", 5)
    history.age()
    before = history.all_reports()
    gone = []
    for _ in range(3):
        with budget(0):
            gone.append(prune_usage(history.calls.database, kept=KEPT))
        assert (history.all_reports(), history.calls.discrepancies()) == (before, [])
    assert gone == [5, 5, 2]


def test_span_that_cuts_a_pruned_hour_is_refused(history: History) -> None:
    history.age()
    prune_usage(history.calls.database, kept=KEPT)
    minute, later = timedelta(minutes=1), history.starts_at + timedelta(days=1)
    for criteria, name in (
        (UsageCriteria(starts_at=history.starts_at + minute, ends_at=later), "from"),
        (UsageCriteria(starts_at=history.starts_at, ends_at=later + minute), "to"),
    ):
        with pytest.raises(ValidationFailed) as refused:
            history.report(criteria)
        assert [at.name for at in refused.value.errors] == [name]


def test_calls_and_reports_do_not_wait_for_pruning(history: History) -> None:
    history.age()
    database = history.calls.database
    with database.transaction() as session:
        session.execute(pruning._MOVE_MARK, {"kept": KEPT})
    with database.transaction() as session:
        session.execute(pruning._PRUNE, {"since": UUID(int=0), "limit": 5})
        with database.transaction() as other:
            other.execute(text("SET LOCAL lock_timeout = '1s'"))
            assert (
                usage(other, history.calls.organization_id, UsageCriteria(window=Window.MONTH)).total.cost
                == 0
            )
        history.calls.charge(3, attribution=history.attribution)
    assert prune_usage(database, kept=KEPT) == 7


def test_a_record_that_was_lost_is_still_found(history: History) -> None:
    history.age()
    prune_usage(history.calls.database, kept=KEPT)
    settled = history.calls.charge(9)
    assert settled.cost == 9
    where = "organization_id = :id"
    with history.calls.database.transaction() as session:
        values = {"id": str(history.calls.organization_id)}
        lost = session.execute(text(f"SELECT * FROM usage_records WHERE {where}"), values).one()._asdict()
        session.execute(text(f"DELETE FROM usage_records WHERE {where}"), values)
    assert "usage" in history.calls.discrepancies()
    plain = {name: str(at) if isinstance(at, UUID) else at for name, at in lost.items()}
    with history.calls.database.transaction() as session:
        columns, given = ", ".join(plain), ", ".join(f":{name}" for name in plain)
        session.execute(text(f"INSERT INTO usage_records ({columns}) VALUES ({given})"), plain)


def test_without_the_setting_records_are_kept_for_ever(history: History, database_url: str) -> None:
    history.age(timedelta(days=4000))
    with bound_worker(
        make_settings(database_url=database_url, redis_url="redis://127.0.0.1:1/0"), [LEDGER]
    ) as worker:
        worker.run("credits.prune_usage")
    assert history.records() == 12
