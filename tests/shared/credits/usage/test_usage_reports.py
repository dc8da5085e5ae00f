"""Windows, groupings and rollups of usage reports, over records with times set by the test."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from shared.credits.holds import Attribution
from shared.credits.usage.rollups import roll_up_usage
from shared.credits.usage.usage_query import Dimension
from shared.credits.usage.usage_records import list_usage_records
from shared.credits.usage.usage_reports import (
    MODEL_WINDOW,
    UsageCriteria,
    UsageReport,
    Window,
    model_usage,
    usage,
)
from shared.identity.access.callers import Caller, Executor, ExecutorKind, Owner, OwnerKind
from shared.runtime.batches import budget
from tests.shared.credits.calls import Calls
from tests.shared.credits.test_interleavings import ROLL_UP_ALL


@pytest.fixture
def funded(calls: Calls) -> Calls:
    calls.top_up(10_000)
    return calls


def report(calls: Calls, window: Window = Window.DAY, *group_by: Dimension) -> UsageReport:
    with calls.database.autocommit() as session:
        return usage(session, calls.organization_id, UsageCriteria(window=window, group_by=group_by))


def charged_ago(calls: Calls, tokens: int, ago: timedelta, **options: object) -> UUID:
    return charged_at(calls, tokens, datetime.now(UTC) - ago, **options)


def charged_at(calls: Calls, tokens: int, moment: datetime, **options: object) -> UUID:
    invocation_id, token = calls.dispatched(tokens, **options)
    calls.settle(invocation_id, token, tokens)
    calls.run(
        "UPDATE usage_records SET occurred_at = :moment WHERE invocation_id = :id",
        id=invocation_id,
        moment=moment,
    )
    return invocation_id


def test_usage_window_covers_exactly_its_length(funded: Calls) -> None:
    calls = funded
    calls.run("UPDATE usage_rollup SET rolled_up_to = 'epoch'")
    for days, tokens in ((0, 1), (2, 20), (10, 300), (40, 4000)):
        charged_ago(calls, tokens, timedelta(days=days))
    expected = {Window.DAY: 1, Window.WEEK: 21, Window.MONTH: 321}
    assert {window: report(calls, window).total.cost for window in Window} == expected
    roll_up_usage(calls.database, slack=ROLL_UP_ALL)
    assert {window: report(calls, window).total.cost for window in Window} == expected
    assert calls.discrepancies() == []


@pytest.mark.parametrize("rolled_up", [False, True])
@pytest.mark.parametrize("window", Window)
def test_a_window_is_exact_to_the_second(funded: Calls, window: Window, rolled_up: bool) -> None:
    funded.run("UPDATE usage_rollup SET rolled_up_to = 'epoch'")
    # A transaction's time stands still, so that no edge of the window passes by what is written meanwhile.
    with funded.database.transaction() as session:
        starts_at = session.execute(text("SELECT now()")).scalar_one() - window.length
        for tokens, seconds in ((1, 1), (20, -1), (300, -1800), (4000, -3600)):
            charged_at(funded, tokens, starts_at + timedelta(seconds=seconds))
        if rolled_up:
            roll_up_usage(funded.database, slack=ROLL_UP_ALL)
        found = usage(session, funded.organization_id, UsageCriteria(window=window))
    assert (found.total.cost, found.ends_at - found.starts_at) == (1, window.length)


@pytest.mark.parametrize("rolled_up", [False, True])
def test_usage_is_broken_down_by_each_key(funded: Calls, rolled_up: bool) -> None:
    keys = {name: uuid4() for name in Attribution.__dataclass_fields__}
    funded.charge(5, attribution=Attribution(**keys))
    funded.charge(3)
    if rolled_up:
        roll_up_usage(funded.database, slack=ROLL_UP_ALL)
    for dimension in Dimension:
        groups = [(group.keys, group.sum.cost) for group in report(funded, Window.DAY, dimension).groups]
        if dimension is Dimension.MODEL:
            assert groups == [(("acme/one",), 8)]
        else:
            column = {Dimension.KEY: "api_key_id"}.get(dimension, f"{dimension.value}_id")
            assert groups == [((str(keys[column]),), 5), ((None,), 3)]


@pytest.mark.parametrize("rolled_up", [False, True])
def test_the_principal_is_the_receiving_identity_else_the_daemon_else_the_user(
    funded: Calls, rolled_up: bool
) -> None:
    receiving, daemon, user = uuid4(), uuid4(), uuid4()
    funded.charge(5, attribution=Attribution(principal_id=receiving, identity_id=daemon))
    funded.charge(3, attribution=Attribution(identity_id=daemon, deployment_id=uuid4()))
    funded.charge(2, attribution=Attribution(user_id=user, api_key_id=uuid4()))
    if rolled_up:
        roll_up_usage(funded.database, slack=ROLL_UP_ALL)
    groups = report(funded, Window.DAY, Dimension.PRINCIPAL).groups
    assert [(group.keys, group.sum.cost) for group in groups] == [
        ((str(receiving),), 5),
        ((str(daemon),), 3),
        ((str(user),), 2),
    ]
    with funded.database.autocommit() as session:
        page = list_usage_records(session, funded.organization_id)
    assert [record.principal_id for record in page.items] == [user, daemon, receiving]


def test_another_agents_daemon_that_receives_is_the_principal() -> None:
    organization, mine, theirs = uuid4(), uuid4(), uuid4()
    caller = Caller(
        executor=Executor(kind=ExecutorKind.DAEMON_IDENTITY, id=mine),
        credential_id=uuid4(),
        organization_id=organization,
        owner=Owner(kind=OwnerKind.DAEMON_IDENTITY, id=theirs, organization_id=organization),
        payer_id=organization,
    )
    assert Attribution.of(caller) == Attribution(identity_id=mine, principal_id=theirs)


def test_calls_after_the_mark_are_counted_once_before_and_after_a_rollup(funded: Calls) -> None:
    funded.charge(5)
    roll_up_usage(funded.database, slack=ROLL_UP_ALL)
    funded.charge(7)
    assert report(funded).total.cost == 12
    roll_up_usage(funded.database, slack=ROLL_UP_ALL)
    assert report(funded).total.cost == 12
    assert roll_up_usage(funded.database, slack=timedelta(hours=1)) == 0


def test_a_correction_reaches_an_hour_that_was_rolled_up_long_ago(funded: Calls) -> None:
    funded.run("UPDATE usage_rollup SET rolled_up_to = 'epoch'")
    invocation_id, token = funded.dispatched(10)
    funded.settle(invocation_id, token, 10, is_estimated=True)
    funded.run(
        "UPDATE usage_records SET occurred_at = occurred_at - interval '5 hours' WHERE invocation_id = :id",
        id=invocation_id,
    )
    roll_up_usage(funded.database, slack=ROLL_UP_ALL)
    funded.settle(invocation_id, token, 4)
    assert report(funded).total.cost == 4
    assert funded.discrepancies() == []


def test_the_catalogs_figures_are_those_of_all_organizations(funded: Calls) -> None:
    model = f"acme/{uuid4()}"
    funded.charge(5, model=model)
    funded.charge(6, model=model)
    roll_up_usage(funded.database, slack=ROLL_UP_ALL)
    with funded.database.autocommit() as session:
        assert model_usage(session)[model] == (11, 2)


def test_the_catalogs_figures_are_of_the_window_that_they_name(funded: Calls) -> None:
    funded.run("UPDATE usage_rollup SET rolled_up_to = 'epoch'")
    model = f"acme/{uuid4()}"
    with funded.database.transaction() as session:
        starts_at = session.execute(text("SELECT now()")).scalar_one() - MODEL_WINDOW.length
        charged_at(funded, 5, starts_at + timedelta(seconds=1), model=model)
        charged_at(funded, 6, starts_at - timedelta(seconds=1), model=model)
        charged_at(funded, 7, starts_at - timedelta(days=8), model=model)
        assert model_usage(session)[model] == (5, 1)


def test_pages_of_records_neither_skip_nor_repeat_those_of_one_moment(funded: Calls) -> None:
    made = {funded.dispatched(1) for _ in range(7)}
    for invocation_id, token in made:
        funded.settle(invocation_id, token, 1)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    funded.run(
        "UPDATE usage_records SET occurred_at = :at WHERE organization_id = :id",
        at=moment,
        id=funded.organization_id,
    )
    seen: list[UUID] = []
    cursor: UUID | None = None
    while True:
        with funded.database.transaction() as session:
            page = list_usage_records(session, funded.organization_id, cursor=cursor, limit=3)
        seen += [record.invocation_id for record in page.items]
        if page.next_cursor is None:
            break
        cursor = UUID(page.next_cursor)
    assert len(seen) == 7
    assert set(seen) == {invocation_id for invocation_id, _ in made}


def test_a_backlog_is_rolled_up_a_day_at_a_time(funded: Calls) -> None:
    funded.run("UPDATE usage_rollup SET rolled_up_to = 'epoch'")
    for days, tokens in ((3, 20), (1, 5)):
        charged_ago(funded, tokens, timedelta(days=days))
    runs: list[bool] = []
    while not runs or runs[-1]:
        with budget(0) as given:
            roll_up_usage(funded.database, slack=timedelta(minutes=1))
        runs.append(given.is_truncated)
    assert len(runs) > 2
    assert report(funded, Window.WEEK).total.cost == 25
    assert funded.discrepancies() == []
