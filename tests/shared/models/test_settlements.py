"""A provider's report is charged despite failures of Postgres, for as long as its worker lives."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest
from sqlalchemy import create_engine, make_url, text

from deploy.embedded.postgres import EmbeddedPostgres
from shared import failpoints
from shared.credits.holds import Dispatch, dispatch
from shared.credits.prices import TokenCounts
from shared.credits.settlement import Outcome, Status
from shared.credits.sweeps import mark_unresolved, settle_unresolved
from shared.messaging.replies import Inbox, ReplyKind
from shared.models import settlements
from shared.models.settlements import Settlements
from tests.shared.models.model_calls import ModelCalls, data_of, received
from tests.support.processes.stack import wait_until

REPORTED = Outcome(
    status=Status.COMPLETED, counts=TokenCounts(prompt_tokens=5, completion_tokens=7), provider="scripted"
)
NEVER_SECONDS = 3600.0
Outage = Callable[[], AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlements, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(settlements, "RETRY_SECONDS", 0.05)


@pytest.fixture
def outage(postgres_server: EmbeddedPostgres, database_url: str) -> Outage:
    """Return a context in which Postgres closes all connections to this module's database and accepts none."""
    name = make_url(database_url).database
    url = make_url(postgres_server.url).set(drivername="postgresql+psycopg2")
    leave = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name")

    @contextmanager
    def outage() -> Iterator[None]:
        administrator = create_engine(url, isolation_level="AUTOCOMMIT")
        with administrator.connect() as connection:
            connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
            connection.execute(leave, {"name": name})
            try:
                yield
            finally:
                connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"))
        administrator.dispose()

    return outage


def dispatched(calls: ModelCalls, inbox: Inbox) -> Dispatch:
    with calls.database.autocommit() as session:
        given = dispatch(session, inbox.address.invocation_id)
    assert given is not None
    return given


def test_reply_without_postgres_is_sent_without_cost_and_charged_later(
    calls: ModelCalls, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = calls.chat("!tokens 3", stream=False)
    with ExitStack() as away:

        def begin(point: str) -> None:
            if point == "invocation.opened":
                away.enter_context(outage())

        monkeypatch.setattr(failpoints, "hit", begin)
        calls.execute(inbox)
        replies = received(inbox)
        assert replies[-1].kind is ReplyKind.END
        assert '"completion_tokens":3' in data_of(replies)
        assert '"cost"' not in data_of(replies)
    wait_until(lambda: calls.record(inbox) is not None, "the call is charged")
    assert calls.charge(inbox) == ("completed", 2, 3, False)
    assert (calls.balance.held, calls.discrepancies()) == (0, [])


def test_a_report_that_comes_after_the_sweeps_estimate_corrects_it(calls: ModelCalls, outage: Outage) -> None:
    inbox = calls.chat("hello")
    given = dispatched(calls, inbox)
    cut_off = Settlements(calls.database)
    with outage():
        assert cut_off.settle(given, REPORTED) is None
        cut_off._retrier.stop(wait=True)
    with calls.database.autocommit() as session:
        session.execute(
            text("UPDATE invocations SET lease_until = now() - interval '1 day' WHERE id = :id"),
            {"id": given.invocation_id},
        )
    mark_unresolved(calls.database)
    settle_unresolved(calls.database)
    assert calls.charge(inbox) == ("failed", 0, 0, True)
    cut_off.close()
    assert calls.charge(inbox) == ("completed", 5, 7, False)
    assert calls.discrepancies() == []


def test_ending_process_settles_pending_calls_first(
    calls: ModelCalls, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlements, "RETRY_SECONDS", NEVER_SECONDS)
    inbox = calls.chat("hello")
    ending = Settlements(calls.database)
    given = dispatched(calls, inbox)
    with outage():
        assert ending.settle(given, REPORTED) is None
    ending.shut_down()
    ending.close()
    assert calls.charge(inbox) == ("completed", 5, 7, False)


def test_ending_process_stops_waiting_and_logs_the_consumed_tokens(
    calls: ModelCalls, outage: Outage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settlements, "SETTLE_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(settlements, "SHUTDOWN_SECONDS", 0.0)
    inbox = calls.chat("hello")
    given = dispatched(calls, inbox)
    ending = Settlements(calls.database)
    ending.shut_down()
    with outage():
        assert ending.settle(given, REPORTED) is None
        ending.close()
    (line,) = [record for record in caplog.records if record.msg == "invocation.not_settled"]
    assert line.__dict__["fields"]["completion_tokens"] == 7
    assert calls.record(inbox) is None


def test_pending_settlements_beyond_the_maximum_are_logged(
    calls: ModelCalls, outage: Outage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settlements, "MAX_PENDING", 1)
    inboxes = [calls.chat("hello") for _ in range(2)]
    given = [dispatched(calls, inbox) for inbox in inboxes]
    full = Settlements(calls.database)
    with outage():
        for each in given:
            assert full.settle(each, REPORTED) is None
    full.close()
    assert [calls.record(inbox) is not None for inbox in inboxes] == [True, False]
    assert [record.msg for record in caplog.records].count("invocation.not_settled") == 1
