"""A month of random traffic: records, sums, series and statements equal the ledger for every grouping."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import combinations
from random import Random
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.credits.holds import Attribution
from shared.credits.settlement import Status
from shared.credits.statements import list_statements, read_statement
from shared.credits.usage.rollups import roll_up_usage
from shared.credits.usage.usage_query import Dimension, Interval
from shared.credits.usage.usage_reports import UsageCriteria, UsageReport, UsageSum, usage
from shared.errors import ValidationFailed
from shared.identity.access.authorization import OPERATOR
from tests.shared.credits.calls import Calls

DAYS = 30
CALLS = 250
COLUMNS = {Dimension.MODEL: "model", Dimension.KEY: "api_key_id"}
FIGURES = tuple(UsageSum.__dataclass_fields__)
Sums = Mapping[tuple[Any, ...], Sequence[int]]


class Traffic:
    """Calls of many users, agents and keys at random times of a month; some are estimated and corrected later."""

    def __init__(self, calls: Calls, seed: int) -> None:
        self.calls, self.random = calls, Random(seed)
        self.ends_at = datetime.now(UTC)
        self.starts_at = self.ends_at - timedelta(days=DAYS)
        self.estimated: list[tuple[UUID, UUID]] = []
        self.ids = [UUID(int=self.random.getrandbits(128)) for _ in range(12)]

    def moment(self) -> datetime:
        """Return a time in the month; every other one is at the edge of an hour."""
        at = self.starts_at + timedelta(microseconds=self.random.randrange(DAYS * 86_400_000_000))
        edge = at.replace(minute=0, second=0, microsecond=self.random.choice([0, 0, 1]))
        return self.random.choice([at, max(edge, self.starts_at)])

    def attribution(self) -> Attribution:
        some = {name: self.random.choice([None, *self.ids[:3]]) for name in Attribution.__dataclass_fields__}
        return Attribution(**some)

    def call(self, at: datetime) -> None:
        tokens, model = self.random.randrange(1, 500), self.random.choice(["acme/one", "acme/two", "@acme/3"])
        invocation_id, token = self.calls.dispatched(tokens, model=model, attribution=self.attribution())
        is_estimated = self.random.random() < 0.2
        status = self.random.choice(list(Status))
        self.calls.settle(invocation_id, token, tokens, status=status, is_estimated=is_estimated)
        self.calls.run(
            "UPDATE usage_records SET occurred_at = :at WHERE invocation_id = :id", at=at, id=invocation_id
        )
        if is_estimated:
            self.estimated.append((invocation_id, token))

    def correct(self) -> None:
        for invocation_id, token in self.random.sample(self.estimated, k=len(self.estimated) // 2):
            self.calls.settle(invocation_id, token, self.random.randrange(700))

    def criteria(self) -> UsageCriteria:
        """Return random criteria: a span of the month with any grouping and filters."""
        first, end = sorted([self.moment(), self.moment()])
        group_by = tuple(self.random.sample(list(Dimension), k=self.random.randrange(4)))
        by_id: dict[Dimension, str | UUID] = {self.random.choice(BY_ID): self.ids[0]}
        filters: list[dict[Dimension, str | UUID]] = [{}, {Dimension.MODEL: "acme/one"}, by_id]
        return UsageCriteria(
            starts_at=first,
            ends_at=self.random.choice([end + timedelta(microseconds=1), self.ends_at + timedelta(hours=2)]),
            interval=self.random.choice([None, *Interval]),
            group_by=group_by,
            filters=self.random.choice(filters),
        )


BY_ID = [dimension for dimension in Dimension if dimension is not Dimension.MODEL]


def ask(calls: Calls, criteria: UsageCriteria) -> UsageReport:
    with calls.database.autocommit() as session:
        return usage(session, calls.organization_id, criteria)


def rows(calls: Calls, statement: str) -> list[Any]:
    with calls.database.autocommit() as session:
        return list(session.execute(text(statement), {"id": str(calls.organization_id)}))


def summed(report: UsageReport) -> Sums:
    return {(group.step, *group.keys): tuple(asdict(group.sum).values()) for group in report.groups}


def value(record: Any, dimension: Dimension) -> str | None:
    if dimension is Dimension.PRINCIPAL:
        found = record.principal_id or record.identity_id or record.user_id
    else:
        found = getattr(record, COLUMNS.get(dimension, f"{dimension.value}_id"))
    return None if found is None else str(found)


def expected(calls: Calls, criteria: UsageCriteria) -> Sums:
    """Return the expected sums, computed from the records in Python."""
    assert criteria.starts_at is not None
    assert criteria.ends_at is not None
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(FIGURES))
    for record in rows(calls, "SELECT * FROM usage_records WHERE organization_id = :id"):
        at = record.occurred_at.astimezone(UTC)
        is_asked = all(value(record, name) == str(wanted) for name, wanted in criteria.filters.items())
        if not is_asked or not criteria.starts_at <= at < criteria.ends_at:
            continue
        hour = at.replace(minute=0, second=0, microsecond=0)
        step = {None: None, Interval.HOUR: hour, Interval.DAY: hour.replace(hour=0)}[criteria.interval]
        group = sums[step, *(value(record, dimension) for dimension in criteria.group_by)]
        for place, figure in enumerate(FIGURES):
            group[place] += 1 if figure == "invocations" else getattr(record, figure)
    return {key: tuple(found) for key, found in sums.items()}


def check(traffic: Traffic) -> None:
    calls = traffic.calls
    charged = int(
        rows(
            calls,
            "SELECT -sum(amount) FROM ledger_entries WHERE organization_id = :id AND kind IN ('charge', 'correction')",
        )[0][0]
    )
    organization: dict[str, Any] = {"actor": OPERATOR, "organization_id": calls.organization_id}
    with calls.database.autocommit() as session:
        months = [balances.month for balances in list_statements(session, **organization).items]
        statements = [read_statement(session, **organization, month=month) for month in months]
    lines = [line for statement in statements for line in statement.lines]
    assert -sum(line.amount for line in lines if line.kind in ("charge", "correction")) == charged
    ends_at = traffic.ends_at + timedelta(hours=1)
    for interval in (None, *Interval):
        for group_by in [(), *((one,) for one in Dimension), *combinations(Dimension, 2), tuple(Dimension)]:
            report = ask(
                calls,
                UsageCriteria(
                    starts_at=traffic.starts_at, ends_at=ends_at, interval=interval, group_by=group_by
                ),
            )
            assert report.total.cost == sum(group.sum.cost for group in report.groups) == charged
    for criteria in (traffic.criteria() for _ in range(40)):
        report = ask(calls, criteria)
        assert {key: sums for key, sums in summed(report).items() if sums[0]} == expected(calls, criteria), (
            criteria
        )
    assert calls.discrepancies() == []


@pytest.mark.parametrize("seed", [1, 2])
def test_random_traffic_sums_to_the_ledger_for_every_grouping(calls: Calls, seed: int) -> None:
    calls.top_up(10_000_000)
    traffic = Traffic(calls, seed)
    calls.run("UPDATE usage_rollup SET rolled_up_to = 'epoch'")
    for _ in range(CALLS):
        traffic.call(traffic.moment())
    check(traffic)
    roll_up_usage(calls.database, slack=timedelta(days=3, minutes=17))
    check(traffic)
    traffic.correct()
    for _ in range(20):
        traffic.call(datetime.now(UTC))
    check(traffic)
    roll_up_usage(calls.database, slack=timedelta())
    check(traffic)


@pytest.mark.parametrize(
    ("criteria", "parameter"),
    [
        (UsageCriteria(), "from"),
        (UsageCriteria(ends_at=datetime(2026, 1, 1, tzinfo=UTC)), "from"),
        (
            UsageCriteria(
                starts_at=datetime(2026, 1, 1, tzinfo=UTC), ends_at=datetime(2026, 1, 1, tzinfo=UTC)
            ),
            "to",
        ),
        (
            UsageCriteria(
                starts_at=datetime(2020, 1, 1, tzinfo=UTC), ends_at=datetime(2026, 1, 1, tzinfo=UTC)
            ),
            "from",
        ),
        (UsageCriteria(starts_at=datetime(2100, 1, 1, tzinfo=UTC)), "from"),
    ],
)
def test_empty_or_too_long_span_is_refused(calls: Calls, criteria: UsageCriteria, parameter: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        ask(calls, criteria)
    assert [wrong.name for wrong in refused.value.errors] == [parameter]
