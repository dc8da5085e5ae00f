"""The wait for replies: bounded in every state, and an abandoned wait cancels the call."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import cycle
from uuid import UUID

import pytest
from sqlalchemy import text

from deploy.embedded.valkey import EmbeddedValkey
from shared.credits import holds
from shared.credits.settlement import Outcome, Status, settle
from shared.db.database import Database
from shared.ids import new_id
from shared.messaging.replies import Inbox, Reply, ReplyKind, ReplyWriter
from shared.messaging.valkey import connect_valkey
from shared.models import heartbeats, reply_timeouts
from shared.models.call_admission import ModelsOverloaded
from shared.models.cancellations import Cancellations
from shared.models.queue.call_queue import CallQueue, cancel, is_cancelled
from shared.models.reply_timeouts import CallFailed, CallLost, replies
from tests.shared.models.model_calls import CREDITS, ModelCalls, data_of
from tests.support.data.monotonic_clock import MonotonicClock
from tests.support.models.call_messages import take_call
from tests.support.processes.stack import PATIENCE_SECONDS, free_port, wait_until


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_timeouts, "PING_SECONDS", 0.02)
    monkeypatch.setattr(reply_timeouts, "QUEUE_SECONDS", 0.1)
    monkeypatch.setattr(reply_timeouts, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(heartbeats, "READ_SECONDS", 0.01)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MonotonicClock:
    """The time in which silences are borne for longer than a machine may be slow."""
    clock = MonotonicClock()
    monkeypatch.setattr(reply_timeouts, "time", clock)
    for limit in ("QUEUE_SECONDS", "IDLE_SECONDS", "MAX_IDLE_SECONDS"):
        monkeypatch.setattr(reply_timeouts, limit, PATIENCE_SECONDS)
    return clock


def writer_to(calls: ModelCalls, inbox: Inbox) -> ReplyWriter:
    return ReplyWriter(calls.executor.publisher, inbox.address)


def is_marked_cancelled(calls: ModelCalls, inbox: Inbox) -> bool:
    """Return whether the call was cancelled, after all due cancellations."""
    calls.invoker.cancellations.close()
    return is_cancelled(calls.valkey, inbox.address.invocation_id)


def remaining_seconds(calls: ModelCalls, inbox: Inbox) -> float:
    """Return what the web process knows of the lease, or None."""
    lease = calls.invoker.leases.find(inbox.address.invocation_id)
    return lease.remaining_seconds if lease is not None else 0


def begin(calls: ModelCalls, inbox: Inbox) -> holds.Progress:
    """Acquire the right to make the call, like a worker that dies afterwards."""
    with calls.database.autocommit() as session:
        dispatch = holds.dispatch(session, inbox.address.invocation_id)
    assert dispatch is not None
    return holds.Progress(invocation_id=dispatch.invocation_id, token=dispatch.token, streamed_tokens=0)


def test_web_process_gives_up_a_call_before_its_hold_expires() -> None:
    """A hold is not renewed: if it ended first, the call would be reported as possibly charged."""
    step = reply_timeouts.IDLE_SECONDS + reply_timeouts.PING_SECONDS
    assert reply_timeouts.QUEUE_SECONDS + step < holds.QUEUE_LEASE_SECONDS


def test_a_call_is_read_to_its_end_and_not_cancelled(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 3")
    with calls.executing(inbox):
        read = [reply for reply in replies(calls.invoker, inbox) if reply is not None]
    assert read[-1].kind is ReplyKind.END
    assert {reply.kind for reply in read[:-1]} == {ReplyKind.DATA}
    assert data_of(read).endswith("data: [DONE]\n\n")
    assert not is_marked_cancelled(calls, inbox)
    assert calls.invoker.replies.waiting == 0


def test_failure_of_the_worker_is_raised_unchanged(calls: ModelCalls) -> None:
    inbox = calls.chat("!fail 429 retry-after 7")
    with calls.executing(inbox), pytest.raises(CallFailed) as raised:
        list(replies(calls.invoker, inbox))
    assert (raised.value.code, raised.value.retry_after_seconds) == ("overloaded", 7)
    assert not raised.value.is_final
    assert not is_marked_cancelled(calls, inbox)


def test_a_failure_that_may_have_cost_something_is_final(calls: ModelCalls) -> None:
    inbox = calls.chat("!fail 500")
    with calls.executing(inbox), pytest.raises(CallFailed) as raised:
        list(replies(calls.invoker, inbox))
    assert raised.value.is_final


@pytest.mark.usefixtures("_impatient")
def test_call_that_no_worker_begins_is_released(calls: ModelCalls) -> None:
    inbox = calls.chat("hello")
    with pytest.raises(ModelsOverloaded) as raised:
        list(replies(calls.invoker, inbox))
    assert raised.value.retry_after_seconds
    assert calls.state(inbox) == "voided"
    assert (calls.balance.held, calls.balance.balance) == (0, CREDITS)
    assert not list(calls.valkey.scan_iter(f"*request:{inbox.address.invocation_id.hex}"))
    calls.execute(inbox)
    assert calls.record(inbox) is None


@pytest.mark.usefixtures("_impatient")
def test_call_is_lost_if_postgres_does_not_report_whether_it_began(
    calls: ModelCalls, lost_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_timeouts, "MAX_IDLE_SECONDS", 0.1)
    inbox = calls.chat("hello")
    leases = heartbeats.LeaseReader(lost_database)
    with closing(leases), pytest.raises(CallLost) as raised:
        list(replies(replace(calls.invoker, database=lost_database, leases=leases), inbox))
    assert raised.value.is_final
    assert is_marked_cancelled(calls, inbox)


@pytest.mark.usefixtures("_impatient")
def test_call_taken_by_a_silent_worker_is_lost_and_cancelled(calls: ModelCalls) -> None:
    inbox = calls.chat("hello")
    begin(calls, inbox)
    with pytest.raises(CallLost) as raised:
        list(replies(calls.invoker, inbox))
    assert raised.value.is_final
    assert calls.state(inbox) == "dispatched"
    assert is_marked_cancelled(calls, inbox)


@pytest.mark.usefixtures("_impatient")
def test_call_of_a_silent_worker_is_lost_and_cancelled(calls: ModelCalls) -> None:
    inbox = calls.chat("hello")
    begin(calls, inbox)
    writer_to(calls, inbox).send(ReplyKind.ALIVE)
    heard: list[Reply | None] = []
    with pytest.raises(CallLost):
        heard.extend(replies(calls.invoker, inbox))
    assert set(heard) == {None}
    assert is_marked_cancelled(calls, inbox)


def test_a_worker_that_renews_its_lease_is_slow_and_not_dead(
    calls: ModelCalls, clock: MonotonicClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "READ_SECONDS", 0.01)
    monkeypatch.setattr(heartbeats, "FRESH_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(reply_timeouts, "MAX_IDLE_SECONDS", 100 * PATIENCE_SECONDS)
    inbox = calls.chat("hello")
    progress = begin(calls, inbox)
    wait_until(lambda: remaining_seconds(calls, inbox) > 0, "the lease is known")
    coming = replies(calls.invoker, inbox, lambda: 0.01)
    for _ in range(15):
        clock.move(1.1 * PATIENCE_SECONDS)
        with calls.database.autocommit() as session:
            assert holds.renew(session, [progress]) == 1
        assert next(coming) is None
    with calls.database.autocommit() as session:
        long_ago = (
            "UPDATE invocations SET lease_until = now() - make_interval(secs => :seconds) WHERE id = :id"
        )
        session.execute(text(long_ago), {"seconds": PATIENCE_SECONDS, "id": inbox.address.invocation_id})
    wait_until(lambda: remaining_seconds(calls, inbox) < 0, "it is known that the lease was not renewed")
    clock.move(1.1 * PATIENCE_SECONDS)
    with pytest.raises(CallLost):
        list(coming)


@pytest.mark.usefixtures("_impatient")
def test_call_with_a_missed_last_reply_is_lost(calls: ModelCalls) -> None:
    inbox = calls.chat("hello")
    progress = begin(calls, inbox)
    outcome = Outcome(status=Status.FAILED, counts=None)
    with calls.database.autocommit() as session:
        settle(session, progress.invocation_id, progress.token, outcome)
    with pytest.raises(CallLost):
        list(replies(calls.invoker, inbox))


def test_a_sign_of_life_is_no_reply_but_ends_a_silence(calls: ModelCalls, clock: MonotonicClock) -> None:
    inbox = calls.chat("hello")
    writer = writer_to(calls, inbox)
    waits = cycle((60.0, 0.01))  # for the sign of life, then for the reply that does not come
    coming = replies(calls.invoker, inbox, waits.__next__)
    for _ in range(10):
        clock.move(0.6 * PATIENCE_SECONDS)
        writer.send(ReplyKind.ALIVE)
        assert next(coming) is None
    writer.send(ReplyKind.DATA, b"there")
    said = next(reply for reply in coming if reply is not None)
    assert said.data == b"there"


def test_closed_wait_cancels_the_call(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 1000\n!delay 20")
    with calls.executing(inbox):
        coming = replies(calls.invoker, inbox)
        assert next(coming) is not None
        coming.close()
    assert is_marked_cancelled(calls, inbox)
    assert calls.charge(inbox)[0] == "cancelled"
    assert calls.invoker.replies.waiting == 0


def test_a_reply_missing_in_the_middle_is_noticed(calls: ModelCalls) -> None:
    inbox = calls.chat("hello")
    writer = writer_to(calls, inbox)
    writer.send(ReplyKind.ALIVE)
    writer._sent += 1
    writer.send(ReplyKind.DATA, b"after the gap")
    with pytest.raises(CallLost):
        list(replies(calls.invoker, inbox))


def test_an_interrupted_channel_is_noticed_by_every_call_and_mended_for_the_next(calls: ModelCalls) -> None:
    waiting = [calls.chat("hello") for _ in range(2)]
    calls.valkey.client_kill_filter(_type="pubsub")
    for inbox in waiting:
        with pytest.raises(CallLost):
            list(replies(calls.invoker, inbox))
    again = calls.chat("!say something", stream=False)
    calls.execute(again)
    assert [reply for reply in replies(calls.invoker, again) if reply is not None]


def test_slow_reader_loses_its_replies_and_delays_no_other(
    calls: ModelCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.messaging.replies.INBOX_LIMIT_BYTES", 1000)
    slow, other = calls.chat("hello"), calls.chat("hello")
    to_slow, to_other = writer_to(calls, slow), writer_to(calls, other)
    for _ in range(5):
        to_slow.send(ReplyKind.DATA, b"x" * 500)
    to_other.send(ReplyKind.DATA, b"quick")
    assert (other.receive(60.0) or pytest.fail("silence")).data == b"quick"
    with pytest.raises(CallLost):
        list(replies(calls.invoker, slow))
    other.close()


def test_a_call_leaves_nothing_in_valkey(calls: ModelCalls) -> None:
    before = set(calls.valkey.scan_iter())
    inbox = calls.chat("!say a secret", stream=False)
    taken = take_call(calls.valkey)
    assert taken is not None
    assert taken.address == inbox.address
    calls.execute(inbox)
    assert set(calls.valkey.scan_iter()) == before
    assert [reply for reply in replies(calls.invoker, inbox) if reply is not None]


def test_a_lost_call_is_lost_without_valkey_too(calls: ModelCalls, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(reply_timeouts, "PING_SECONDS", 0.02)
    inbox = calls.chat("hello")
    with connect_valkey(f"redis://127.0.0.1:{free_port()}") as dead:
        cancellations = Cancellations(CallQueue(dead))
        coming = replies(replace(calls.invoker, cancellations=cancellations), inbox)
        assert next(coming) is None
        coming.close()
        cancellations.close()
    assert not is_marked_cancelled(calls, inbox)


@pytest.mark.usefixtures("_impatient")
def test_wait_for_a_silent_call_does_no_io(calls: ModelCalls) -> None:
    """One thread serves the waits of all clients: a server that is away would stop them all."""
    inbox = calls.chat("hello")
    may_answer = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(may_answer.wait, PATIENCE_SECONDS)
        coming = replies(replace(calls.invoker, threads=threads), inbox)
        wait_until(
            lambda: next(coming) is None and threads._work_queue.qsize() > 0, "a server is to be asked"
        )
        assert next(coming) is None
        may_answer.set()
        with pytest.raises(ModelsOverloaded):
            list(coming)
    assert calls.state(inbox) == "voided"


@pytest.mark.usefixtures("_impatient")
def test_call_is_lost_if_no_server_reports_its_state(
    calls: ModelCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_timeouts, "MAX_IDLE_SECONDS", 0.1)
    monkeypatch.setattr(reply_timeouts, "GIVE_UP_SECONDS", 0.1)
    inbox = calls.chat("hello")
    has_ended = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(has_ended.wait, PATIENCE_SECONDS)
        with pytest.raises(CallLost):
            list(replies(replace(calls.invoker, threads=threads), inbox))
        has_ended.set()
    assert calls.state(inbox) == "held"
    assert is_marked_cancelled(calls, inbox)


def test_more_requests_than_connections_to_valkey_wait_for_their_turn(valkey_server: EmbeddedValkey) -> None:
    leaving = [new_id() for _ in range(300)]
    start = threading.Barrier(len(leaving))
    with connect_valkey(valkey_server.url) as valkey, ThreadPoolExecutor(len(leaving)) as pool:

        def leave(invocation_id: UUID) -> None:
            start.wait(60)
            cancel(valkey, invocation_id)

        list(pool.map(leave, leaving))
        assert all(is_cancelled(valkey, invocation_id) for invocation_id in leaving)
