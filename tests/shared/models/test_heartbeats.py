"""Heartbeats of calls: replies to silent clients, renewed leases with streamed tokens, cancellation."""

from typing import Any

import pytest

from shared.credits import holds
from shared.messaging.replies import Inbox, Reply, ReplyKind
from shared.models import heartbeats
from shared.models.queue.call_queue import cancel
from tests.shared.models.model_calls import ModelCalls, data_of, received
from tests.support.processes.stack import wait_until


@pytest.fixture(autouse=True)
def _busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "ROUND_SECONDS", 0.02)
    monkeypatch.setattr(heartbeats, "ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(heartbeats, "RENEW_SECONDS", 0.05)


def hear(inbox: Inbox, kind: ReplyKind) -> Reply:
    while True:
        reply = inbox.receive(60.0)
        assert reply is not None
        if reply.kind is kind:
            return reply


def test_call_with_a_silent_upstream_sends_heartbeats(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 9\n!stall after 2")
    with calls.executing(inbox):
        for _ in range(3):
            hear(inbox, ReplyKind.ALIVE)
        cancel(calls.valkey, inbox.address.invocation_id)
    assert calls.charge(inbox)[0] == "cancelled"


def test_a_call_that_has_just_begun_gives_no_sign_of_life(
    calls: ModelCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "ALIVE_SECONDS", 3600.0)
    inbox = calls.chat("!wait 100000")
    rounds: list[object] = []
    cancel_unwanted = heartbeats.Heartbeats._cancel_unwanted

    def counted(*given: Any) -> None:
        rounds.append(given)
        cancel_unwanted(*given)

    monkeypatch.setattr(heartbeats.Heartbeats, "_cancel_unwanted", counted)
    with calls.executing(inbox):
        wait_until(lambda: len(rounds) >= 3, "the call was looked after")
        cancel(calls.valkey, inbox.address.invocation_id)
    reply = inbox.receive(60.0)
    assert reply is not None
    assert reply.kind is ReplyKind.FAILED


def test_a_call_that_was_cancelled_during_a_silence_ends(calls: ModelCalls) -> None:
    inbox = calls.chat("!wait 100000")
    with calls.executing(inbox):
        hear(inbox, ReplyKind.ALIVE)
        cancel(calls.valkey, inbox.address.invocation_id)
    assert calls.charge(inbox)[0] == "cancelled"


def test_streamed_tokens_are_recorded_and_the_lease_renewed(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 9\n!stall after 4")

    def row() -> dict[str, object]:
        return calls._rows("SELECT * FROM invocations WHERE id = CAST(:id AS uuid)", inbox)[0]

    with calls.executing(inbox):
        hear(inbox, ReplyKind.DATA)
        wait_until(lambda: row()["streamed_tokens"] == 6, "four words, 23 bytes, are noted")
        lease = row()["lease_until"]
        wait_until(lambda: row()["lease_until"] != lease, "the lease is renewed")
        cancel(calls.valkey, inbox.address.invocation_id)
    assert calls.charge(inbox)[2] == 6


def test_failed_renewal_does_not_stop_heartbeats(calls: ModelCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(holds, "renew", fail)
    inbox = calls.chat("!tokens 9\n!stall after 2")
    with calls.executing(inbox):
        for _ in range(5):
            hear(inbox, ReplyKind.ALIVE)
        cancel(calls.valkey, inbox.address.invocation_id)
    assert calls.charge(inbox)[0] == "cancelled"


def test_every_call_ends_when_the_process_is_asked_to(calls: ModelCalls) -> None:
    calls_under_way = [calls.chat("!tokens 9\n!stall after 4") for _ in range(3)]
    first, second, third = calls_under_way
    with calls.executing(first), calls.executing(second), calls.executing(third):
        for inbox in calls_under_way:
            hear(inbox, ReplyKind.DATA)
        wait_until(lambda: calls.executor.engine.heartbeats.running == 3, "all are looked after")
        calls.executor.engine.heartbeats.cancel_all()
    assert calls.executor.engine.heartbeats.running == 0
    assert [calls.charge(inbox)[0] for inbox in calls_under_way] == ["cancelled"] * 3
    for inbox in calls_under_way:
        assert '"code":"cancelled"' in data_of(received(inbox))
    assert calls.discrepancies() == []
