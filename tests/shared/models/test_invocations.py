"""The web process's half of a call: permission, hold, and a call that cannot be queued costs nothing."""

import threading
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import redis

from shared.credits.errors import InsufficientCredits
from shared.db.database import Database
from shared.messaging import replies
from shared.messaging.replies import Inbox, ReplyAddress, ReplyChannel, ReplyKind
from shared.messaging.valkey import connect_valkey
from shared.models.call_admission import ModelsOverloaded
from shared.models.catalog import Catalog
from shared.models.dialects import Dialect, parse_chat
from shared.models.errors import ModelNotFound, ModelNotSupported
from shared.models.execution import execute
from shared.models.invocations import invoke
from shared.models.queue.call_queue import AcceptedRequest, CallQueue, queue_of
from tests.shared.models.model_calls import CREDITS, ModelCalls, received
from tests.support.models.call_messages import KEYS, take_call
from tests.support.processes.stack import free_port


def held_for(calls: ModelCalls, inbox: Inbox) -> int:
    return int(calls._rows("SELECT hold FROM invocations WHERE id = CAST(:id AS uuid)", inbox)[0]["hold"])


def test_call_holds_its_maximum_expected_cost(calls: ModelCalls) -> None:
    limited = calls.chat("hello", max_completion_tokens=100)
    twice = calls.chat("hello", max_completion_tokens=100, n=2)
    unlimited = calls.chat("hello")
    greedy = calls.chat("hello", max_completion_tokens=1_000_000)
    prompt = held_for(calls, limited) - 200
    assert prompt > 0
    assert held_for(calls, twice) == prompt + 400
    assert held_for(calls, unlimited) == held_for(calls, greedy) == prompt + 2 * 4096
    assert calls.balance.held == sum(held_for(calls, at) for at in (limited, twice, unlimited, greedy))


def test_a_prompt_is_in_no_row_and_in_no_message(calls: ModelCalls) -> None:
    inbox = calls.chat("a canary in a coal mine")
    row = calls._rows("SELECT * FROM invocations WHERE id = CAST(:id AS uuid)", inbox)[0]
    assert "canary" not in repr(row)
    entries: list[Any] = [entry for key in KEYS for entry in calls.valkey.lrange(key, 0, -1)]
    assert len(entries) == 1
    assert b"canary" not in entries[0]
    key = f"quartermaster:request:{inbox.address.invocation_id.hex}"
    assert 0 < int(calls.valkey.ttl(key)) <= 300


@pytest.mark.parametrize(
    ("model", "error"), [("scripted/none", ModelNotFound), ("scripted/chat-only", ModelNotSupported)]
)
def test_a_model_that_cannot_be_called_holds_nothing(
    calls: ModelCalls, model: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        calls.respond("hello", model=model)
    assert calls.balance.held == 0


@pytest.mark.parametrize(("asked", "provider"), [({}, "first"), ({"stop": ["."]}, "second")])
def test_call_counts_for_the_first_provider_that_supports_its_request(
    calls: ModelCalls, asked: dict[str, Any], provider: str
) -> None:
    """Its share, its queue and the line of those put aside are that provider's."""
    entry = calls.executor.catalog.current().entries[0]
    at = entry.upstreams[0]
    first = replace(at, provider=replace(at.provider, name="first"), dialect=Dialect.RESPONSES)
    second = replace(at, provider=replace(at.provider, name="second"))
    request = parse_chat({"model": entry.id, "messages": [{"role": "user", "content": "hello"}], **asked})
    catalog = Catalog([replace(entry, upstreams=(first, second))])
    inbox = invoke(calls.invoker, catalog, calls.caller, request)
    taken = take_call(calls.valkey)
    assert taken is not None
    assert calls.caller.payer_id is not None
    assert (taken.provider, taken.queue) == (provider, queue_of(provider, calls.caller.payer_id))
    row = calls._rows("SELECT provider FROM invocations WHERE id = CAST(:id AS uuid)", inbox)[0]
    assert row["provider"] == provider
    calls.execute(inbox)
    assert calls.charge(inbox)[0] == "completed"


def test_call_beyond_the_balance_is_refused_before_it_is_queued(calls: ModelCalls) -> None:
    with pytest.raises(InsufficientCredits) as raised:
        calls.with_limits(reserved_completion_tokens=CREDITS).chat("hello")
    assert raised.value.data["available"] == "1"
    assert calls.invoker.queue.count() == 0


def test_no_more_calls_are_queued_than_may_wait(calls: ModelCalls) -> None:
    narrow = calls.with_limits(queued_calls=2)
    waiting = [narrow.chat("hello"), narrow.chat("hello")]
    held = calls.balance.held
    with pytest.raises(ModelsOverloaded) as raised:
        narrow.chat("hello")
    assert raised.value.retry_after_seconds
    assert calls.balance.held == held
    assert [calls.state(at) for at in waiting] == ["held", "held"]


def test_a_call_is_refused_and_holds_nothing_while_valkey_is_away(calls: ModelCalls) -> None:
    with connect_valkey(f"redis://127.0.0.1:{free_port()}") as dead:
        unsent = replace(calls, invoker=replace(calls.invoker, queue=CallQueue(dead)))
        for _ in range(2):
            with pytest.raises(ModelsOverloaded):
                unsent.chat("hello")
    assert (calls.balance.held, calls.discrepancies()) == (0, [])
    assert calls.invoker.replies.waiting == 0
    assert calls.states() == ["voided"], "while it is known to be away nothing is held in vain"


def test_call_without_a_reply_channel_is_refused(calls: ModelCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "SUBSCRIBE_TIMEOUT_SECONDS", 0.05)
    with connect_valkey(f"redis://127.0.0.1:{free_port()}") as dead:
        deaf = ReplyChannel(dead)
        with pytest.raises(ModelsOverloaded):
            replace(calls, invoker=replace(calls.invoker, replies=deaf)).chat("hello")
        deaf.close()
    assert (calls.balance.held, calls.states()) == (0, [])


@pytest.fixture
def unconfirmed(calls: ModelCalls) -> ModelCalls:
    """Calls that Valkey receives and a worker runs, while the web process gets no confirmation."""

    class Hesitant(CallQueue):
        """A queue that accepts the call and loses its response."""

        def put(self, address: ReplyAddress, request: AcceptedRequest, *, organization_id: UUID) -> None:
            super().put(address, request, organization_id=organization_id)
            thread = threading.Thread(target=execute, args=(calls.executor, address))
            thread.start()
            thread.join(60)
            raise redis.ConnectionError

    return replace(calls, invoker=replace(calls.invoker, queue=Hesitant(calls.valkey)))


def test_call_begun_after_a_failed_put_continues(unconfirmed: ModelCalls) -> None:
    inbox = unconfirmed.chat("!tokens 3")
    assert received(inbox)[-1].kind is ReplyKind.END
    assert unconfirmed.charge(inbox)[0] == "completed"
    inbox.close()


def test_call_is_kept_while_valkey_and_postgres_do_not_report_its_state(
    unconfirmed: ModelCalls, lost_database: Database
) -> None:
    """A retry would run the call, and charge it, twice."""
    invoker = replace(unconfirmed.invoker, database=lost_database)
    inbox = replace(unconfirmed, invoker=invoker).chat("!tokens 3")
    assert received(inbox)[-1].kind is ReplyKind.END
    inbox.close()


def test_invocation_has_its_attribution(calls: ModelCalls) -> None:
    inbox = calls.chat("hello")
    row = calls._rows("SELECT * FROM invocations WHERE id = CAST(:id AS uuid)", inbox)[0]
    assert isinstance(row["user_id"], UUID)
    assert row["organization_id"] == calls.caller.payer_id
    assert (row["identity_id"], row["deployment_id"]) == (None, None)
