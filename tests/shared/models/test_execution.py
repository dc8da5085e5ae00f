"""The worker's half of a call: every outcome is charged for its consumption and reported to the client."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from shared.credits.errors import InsufficientCredits
from shared.db.database import Database
from shared.fairness.admission import ConcurrencyLimited
from shared.ids import new_id
from shared.messaging.replies import Inbox, ReplyKind
from shared.messaging.reply_publisher import ReplyPublisher
from shared.messaging.valkey import connect_valkey
from shared.models.catalog import Catalog, ModelEntry, ProviderEntry, ProviderKind, Upstream
from shared.models.catalog_file import CatalogFile
from shared.models.dialects import (
    UPSTREAM_DIALECTS,
    Dialect,
    estimate_prompt_tokens,
    parse_chat,
    parse_responses,
)
from shared.models.engine import Engine
from shared.models.execution import execute
from shared.models.heartbeats import LeasedCall
from shared.models.invocations import invoke
from shared.models.queue.call_queue import CallQueue, cancel
from shared.models.reply_timeouts import replies
from tests.shared.models.model_calls import CATALOG, CREDITS, ModelCalls, data_of, received
from tests.support.models.upstream_scripts import Script
from tests.support.models.upstreams import FakeUpstream
from tests.support.processes.stack import free_port, wait_until

WORDS = ("!tokens 9", 2, 9)
ENDPOINTS = pytest.mark.parametrize("endpoint", ["chat", "respond"])
MODELS = pytest.mark.parametrize("model", ["scripted/chat", "scripted/responses"])


@pytest.fixture(autouse=True)
def _everything_adds_up(calls: ModelCalls) -> object:
    """After each test nothing is held any more, and all books agree."""
    yield
    assert calls.balance.held == 0
    assert calls.discrepancies() == []


def ask(calls: ModelCalls, endpoint: str, said: str, model: str, *, stream: bool = True) -> Inbox:
    inbox: Inbox = getattr(calls, endpoint)(said, model=model, stream=stream)
    return inbox


def test_request_field_of_a_newer_release_is_ignored(calls: ModelCalls) -> None:
    inbox = ask(calls, "chat", "!tokens 9", "scripted/chat")
    key = f"quartermaster:request:{inbox.address.invocation_id.hex}"
    stored: Any = calls.valkey.get(key)
    request = json.loads(stored) | {"added": 1}
    entry = json.loads(request["entry"]) | {"added": 2}
    entry["prices"] |= {"added": 3}
    entry["upstreams"][0] |= {"added": 4}
    entry["upstreams"][0]["provider"] |= {"added": 5}
    calls.valkey.set(key, json.dumps(request | {"entry": json.dumps(entry)}))
    calls.execute(inbox)
    assert received(inbox)[-1].kind is ReplyKind.END
    assert calls.charge(inbox) == ("completed", 2, 9, False)


@ENDPOINTS
@MODELS
def test_a_completed_call_is_charged_as_reported(calls: ModelCalls, endpoint: str, model: str) -> None:
    inbox = ask(calls, endpoint, "!tokens 9", model)
    calls.execute(inbox)
    replies = received(inbox)
    assert replies[-1].kind is ReplyKind.END
    assert "word8" in data_of(replies)
    assert calls.charge(inbox) == ("completed", 2, 9, False)
    assert calls.balance.balance == CREDITS - (2 * 1 + 9 * 2)


@ENDPOINTS
@MODELS
def test_plain_call_gets_one_document(calls: ModelCalls, endpoint: str, model: str) -> None:
    inbox = ask(calls, endpoint, "!tokens 9", model, stream=False)
    calls.execute(inbox)
    (end,) = received(inbox)
    assert end.kind is ReplyKind.END
    assert json.loads(end.data)["usage"]["total_tokens"] == 11
    assert calls.charge(inbox) == ("completed", 2, 9, False)


@ENDPOINTS
@MODELS
def test_a_reply_that_was_cut_short_is_incomplete(calls: ModelCalls, endpoint: str, model: str) -> None:
    inbox = ask(calls, endpoint, "!tokens 9\n!length", model)
    calls.execute(inbox)
    assert received(inbox)[-1].kind is ReplyKind.END
    assert calls.charge(inbox)[0] == "incomplete"


@MODELS
def test_usage_that_was_not_reported_is_estimated_and_marked(calls: ModelCalls, model: str) -> None:
    inbox = calls.chat("!say four byte text here\n!no-usage", model=model)
    calls.execute(inbox)
    status, prompt_tokens, completion_tokens, is_estimated = calls.charge(inbox)
    assert (status, is_estimated, completion_tokens) == ("completed", True, 5)
    assert prompt_tokens > 0


@pytest.mark.parametrize(
    ("directive", "code", "kind"),
    [
        ("!fail 401", "provider_error", "upstream_failed"),
        ("!fail 500", "provider_error", "upstream_failed"),
        ("!fail 429 retry-after 7", "overloaded", "unavailable"),
        ("!fail 503", "overloaded", "unavailable"),
        ("!fail 400", "scripted_failure", "malformed"),
        ("!fail 422", "scripted_failure", "invalid"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_call_that_brought_neither_report_nor_reply_costs_nothing(
    calls: ModelCalls, directive: str, code: str, kind: str, *, stream: bool
) -> None:
    inbox = calls.chat(directive, stream=stream)
    calls.execute(inbox)
    failed = received(inbox)[-1]
    told = json.loads(failed.data)
    assert (failed.kind, told["code"], told["kind"]) == (ReplyKind.FAILED, code, kind)
    assert calls.charge(inbox) == ("failed", 0, 0, False)
    assert calls.balance.balance == CREDITS
    record = calls.record(inbox)
    assert record is not None
    assert record["provider"] == "scripted"


def test_overloaded_provider_returns_retry_after(calls: ModelCalls) -> None:
    inbox = calls.chat("!fail 429 retry-after 7")
    calls.execute(inbox)
    assert json.loads(received(inbox)[-1].data)["retry_after_seconds"] == 7


def test_a_provider_that_is_too_slow_to_begin_is_owed_nothing(calls: ModelCalls) -> None:
    inbox = calls.chat("!wait 60000", model="scripted/hasty")
    calls.execute(inbox)
    assert json.loads(received(inbox)[-1].data)["code"] == "provider_timeout"
    assert calls.charge(inbox) == ("failed", 0, 0, False)


@MODELS
@pytest.mark.parametrize("directive", ["!break after 0", "!end after 0", "!fail 500 after 0"])
def test_reply_broken_before_its_first_word_is_charged_as_reported(
    calls: ModelCalls, model: str, directive: str
) -> None:
    inbox = calls.chat(f"!tokens 9\n{directive}", model=model)
    calls.execute(inbox)
    # Of the Chat dialect a reply has begun with its role; of Responses not before the first word.
    has_begun = model == "scripted/chat"
    assert received(inbox)[-1].kind is (ReplyKind.END if has_begun else ReplyKind.FAILED)
    is_reported = (model, directive) == ("scripted/responses", "!fail 500 after 0")
    assert calls.charge(inbox) == ("failed", 6 if is_reported else 0, 0, False)


@ENDPOINTS
@MODELS
@pytest.mark.parametrize("directive", ["!break after 4", "!end after 4", "!fail 500 after 4"])
def test_broken_stream_ends_with_an_error_and_is_charged_for_its_output(
    calls: ModelCalls, endpoint: str, model: str, directive: str
) -> None:
    inbox = ask(calls, endpoint, f"!tokens 9\n{directive}", model)
    calls.execute(inbox)
    replies = received(inbox)
    assert replies[-1].kind is ReplyKind.END
    said = data_of(replies)
    assert "word3" in said
    assert "word4" not in said
    assert '"error"' in said
    assert '"finish_reason":"stop"' not in said
    assert "response.completed" not in said
    status, _, completion_tokens, is_estimated = calls.charge(inbox)
    assert status == "failed"
    assert completion_tokens == (6 if is_estimated else 4)  # 23 bytes, or what the upstream reported


@MODELS
def test_broken_response_fails_a_client_without_a_stream(calls: ModelCalls, model: str) -> None:
    inbox = calls.respond("!tokens 9\n!break after 4", model=model, stream=False)
    calls.execute(inbox)
    replies = received(inbox)
    assert [reply.kind for reply in replies] == [ReplyKind.FAILED]
    assert json.loads(replies[-1].data)["may_have_cost"] is True
    assert calls.charge(inbox) == ("failed", 0, 0, False)


@pytest.mark.parametrize("directive", ["!end after 4", "!fail 500 after 4"])
@MODELS
def test_invalid_plain_reply_fails_and_is_charged_as_reported(
    calls: ModelCalls, model: str, directive: str
) -> None:
    inbox = calls.chat(f"!tokens 9\n{directive}", model=model, stream=False)
    calls.execute(inbox)
    (failed,) = received(inbox)
    is_reported = (model, directive) == ("scripted/responses", "!fail 500 after 4")
    assert (failed.kind, json.loads(failed.data)["kind"]) == (ReplyKind.FAILED, "upstream_failed")
    assert calls.charge(inbox) == (("failed", 6, 4, False) if is_reported else ("failed", 0, 0, False))


def test_plain_reply_may_exceed_the_first_byte_timeout(calls: ModelCalls) -> None:
    inbox = calls.chat("!wait 300\n!tokens 9", model="scripted/hasty", stream=False)
    calls.execute(inbox)
    assert calls.charge(inbox)[0] == "completed"


@pytest.mark.parametrize("streams_only", [False, True])
@pytest.mark.parametrize("dialect", UPSTREAM_DIALECTS)
@ENDPOINTS
def test_plain_call_requests_a_plain_reply_unless_the_upstream_only_streams(
    calls: ModelCalls, endpoint: str, dialect: Dialect, *, streams_only: bool
) -> None:
    with FakeUpstream() as upstream:
        entry = asked_at(calls, upstream, dialect, streams_only=streams_only)
        inbox = invoked(calls, entry, endpoint)
        calls.execute(inbox)
        assert [received.body["stream"] for received in upstream.received] == [streams_only]
    (end,) = received(inbox)
    assert end.kind is ReplyKind.END
    assert "token token token " in end.data.decode()
    assert calls.charge(inbox) == ("completed", 10, 3, False)


@pytest.mark.parametrize(
    ("script", "streams_only", "ended"),
    [
        (Script(wait_seconds=60), False, "client left"),
        (Script(stall_after=2), False, "broken"),
        (Script(stall_after=0), True, "broken"),
    ],
    ids=["head", "body", "stream without a word"],
)
@pytest.mark.parametrize("dialect", UPSTREAM_DIALECTS)
def test_abandoned_plain_reply_closes_its_connection_and_is_charged_its_estimated_prompt(
    calls: ModelCalls, dialect: Dialect, script: Script, ended: str, *, streams_only: bool
) -> None:
    with FakeUpstream(script) as upstream:
        inbox = invoked(calls, asked_at(calls, upstream, dialect, streams_only=streams_only), "chat")
        with calls.executing(inbox):
            wait_until(lambda: upstream.served, "the upstream is asked")
            cancel(calls.valkey, inbox.address.invocation_id)
        assert upstream.wait_for_end_of(1)[0].ended == ended
    status, prompt_tokens, completion_tokens, is_estimated = calls.charge(inbox)
    assert (status, completion_tokens, is_estimated) == ("cancelled", 0, True)
    assert prompt_tokens == estimate_prompt_tokens(parse_chat({"model": "m", "messages": HELLO}))


HELLO = [{"role": "user", "content": "hello"}]


def asked_at(
    calls: ModelCalls, upstream: FakeUpstream, dialect: Dialect, *, streams_only: bool = False
) -> ModelEntry:
    provider = ProviderEntry(name="fake", kind=ProviderKind.OPENAI_COMPATIBLE, base_url=upstream.base_url)
    at = Upstream(provider=provider, model="m", dialect=dialect, streams_only=streams_only)
    return replace(calls.executor.catalog.current().entries[0], upstreams=(at,))


def invoked(calls: ModelCalls, entry: ModelEntry, endpoint: str, *, stream: bool = False) -> Inbox:
    chat = {"model": entry.id, "messages": HELLO, "stream": stream}
    responses = {"model": entry.id, "input": "hello", "store": False, "stream": stream}
    request = parse_chat(chat) if endpoint == "chat" else parse_responses(responses)
    return invoke(calls.invoker, Catalog([entry]), calls.caller, request)


def test_call_keeps_the_price_and_upstream_of_its_hold(calls: ModelCalls, tmp_path: Path) -> None:
    inbox = calls.chat("!tokens 3", model="scripted/narrow")
    catalog = tmp_path / "models.toml"
    catalog.write_text(catalog.read_text().replace('prompt_price = "1"', 'prompt_price = "9"'))
    wait_until(lambda: price_of(calls, "scripted/narrow") == 9_000_000, "the catalog is read")
    calls.execute(inbox)
    record = calls.record(inbox)
    assert record is not None
    assert record["cost"] == record["prompt_tokens"] + 2 * record["completion_tokens"]
    assert calls.discrepancies() == []


def price_of(calls: ModelCalls, model: str) -> int | None:
    entry = calls.executor.catalog.current().find(model)
    return entry.prices.prompt if entry else None


def test_worker_makes_a_call_to_a_model_missing_from_its_catalog(calls: ModelCalls, tmp_path: Path) -> None:
    inbox = calls.chat("!tokens 3")
    unaware = tmp_path / "old.toml"
    unaware.write_text(CATALOG.replace("scripted/", "other/"))
    calls.execute(inbox, replace(calls.executor, catalog=CatalogFile(unaware)))
    assert calls.charge(inbox) == ("completed", 2, 3, False)


def test_secret_is_sent_only_where_the_workers_catalog_says(
    calls: ModelCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "a secret")
    with FakeUpstream() as upstream:
        provider = ProviderEntry(
            name="elsewhere",
            kind=ProviderKind.OPENAI_COMPATIBLE,
            base_url=upstream.base_url,
            api_key_env="UPSTREAM_KEY",
        )
        entry = calls.executor.catalog.current().entries[0]
        diverted = replace(entry, upstreams=(Upstream(provider=provider, model="m", dialect=Dialect.CHAT),))
        request = parse_chat({"model": entry.id, "messages": [{"role": "user", "content": "hello"}]})
        inbox = invoke(calls.invoker, Catalog([diverted]), calls.caller, request)
        calls.execute(inbox)
        assert json.loads(received(inbox)[-1].data)["code"] == "provider_error"
        assert not upstream.received
    assert calls.charge(inbox) == ("failed", 0, 0, False)


def test_model_at_its_limit_refuses_calls(calls: ModelCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused call leaves no row. A call whose client has gone counts until its worker has ended it."""
    monkeypatch.setattr(calls.invoker.admission, "_max_wait_seconds", 0.0)
    first = calls.chat("!tokens 2\n!delay 60000", model="scripted/narrow")
    with pytest.raises(ConcurrencyLimited):
        calls.chat("hello", model="scripted/narrow")
    with calls.executing(first):
        wait_until(lambda: b":made" in slots_of(calls, "scripted/narrow"), "the worker holds its slot")
        calls.invoker.admission.end(first.address.invocation_id)
        with pytest.raises(ConcurrencyLimited):
            calls.chat("hello", model="scripted/narrow")
        cancel(calls.valkey, first.address.invocation_id)
    second = calls.chat("hello", model="scripted/narrow")
    calls.execute(second)
    assert (calls.states(), slots_of(calls, "scripted/narrow")) == (["settled", "settled"], b"")


def test_unsent_call_releases_its_slot(calls: ModelCalls) -> None:
    withdrawn = calls.chat("hello", model="scripted/narrow")
    waiting = replies(calls.invoker, withdrawn, lambda: 0.0)
    assert (next(waiting), slots_of(calls, "scripted/narrow") != b"") == (None, True)
    waiting.close()
    wait_until(lambda: slots_of(calls, "scripted/narrow") == b"", "its slot is free")
    calls.execute(withdrawn)
    with pytest.raises(InsufficientCredits):
        calls.chat("hello", model="scripted/narrow", max_tokens=4000, n=128)
    wait_until(lambda: slots_of(calls, "scripted/narrow") == b"", "its slot is free")


def slots_of(calls: ModelCalls, model: str) -> bytes:
    """The leases of a model."""
    leases: Any = calls.valkey.zrange(f"model:slots:{model}", 0, -1)
    return b" ".join(leases)


def test_a_call_cancelled_before_it_begins_is_not_made(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 9")
    calls.invoker.queue.withdraw(inbox.address.invocation_id)
    calls.execute(inbox)
    assert calls.charge(inbox) == ("cancelled", 0, 0, False)


def test_cancelled_stream_is_charged_for_its_output(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 1000\n!delay 20")
    with calls.executing(inbox):
        while b"word3" not in (reply := inbox.receive(10.0) or pytest.fail("silence")).data:
            pass
        cancel(calls.valkey, inbox.address.invocation_id)
    assert reply.kind is ReplyKind.DATA
    status, _, completion_tokens, is_estimated = calls.charge(inbox)
    assert (status, is_estimated) == ("cancelled", True)
    assert 5 <= completion_tokens < 1000


def test_a_call_cancelled_while_its_upstream_is_silent_ends_too(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 9\n!stall after 4")
    with calls.executing(inbox):
        while b"word3" not in (inbox.receive(10.0) or pytest.fail("silence")).data:
            pass
        cancel(calls.valkey, inbox.address.invocation_id)
    assert calls.charge(inbox)[:3:2] == ("cancelled", 6)


@pytest.mark.parametrize("dialect", UPSTREAM_DIALECTS)
@ENDPOINTS
def test_call_without_a_client_is_charged_by_the_report_received(
    calls: ModelCalls, endpoint: str, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker finds the client gone when it sends the first text; all other events have arrived by then."""
    with FakeUpstream(Script(delay_seconds=0.02)) as upstream:

        def send_to_nobody(leased: LeasedCall, kind: ReplyKind, data: bytes = b"") -> bool:
            assert upstream.wait_for_end_of(1)[0].ended == "answered"
            leased.cancelled.set()
            return False

        monkeypatch.setattr(LeasedCall, "send", send_to_nobody)
        inbox = invoked(calls, asked_at(calls, upstream, dialect), endpoint, stream=True)
        calls.execute(inbox)
    assert calls.charge(inbox) == ("cancelled", 10, 3, False)


def test_call_of_a_dead_web_process_is_cancelled(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 1000\n!delay 20")
    execute(calls.executor, replace(inbox.address, channel="quartermaster:replies:of-a-front-that-died"))
    assert calls.charge(inbox)[0] == "cancelled"


def test_a_call_survives_the_loss_of_every_connection_to_postgres(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 9")
    other = Database(calls.database.engine.url.render_as_string(hide_password=False))
    with other.autocommit() as session:
        session.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    other.dispose()
    calls.execute(inbox)
    assert calls.charge(inbox) == ("completed", 2, 9, False)


def test_a_second_message_for_a_call_does_nothing(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 9")
    for _ in range(3):
        calls.execute(inbox)
    assert [reply.kind for reply in received(inbox)].count(ReplyKind.END) == 1
    assert inbox.receive(0.1) is None
    assert calls.balance.balance == CREDITS - 20


def test_call_with_a_lost_request_costs_nothing_and_reports_it(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 9")
    for key in calls.valkey.scan_iter("quartermaster:request:*"):
        calls.valkey.delete(key)
    calls.execute(inbox)
    failed = received(inbox)[-1]
    assert (failed.kind, json.loads(failed.data)["kind"]) == (ReplyKind.FAILED, "unavailable")
    assert calls.charge(inbox) == ("failed", 0, 0, False)


def test_call_with_an_unreadable_request_costs_nothing(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 9")
    with connect_valkey(f"redis://127.0.0.1:{free_port()}") as dead:
        calls.execute(
            inbox, replace(calls.executor, valkey=dead, queue=CallQueue(dead), publisher=ReplyPublisher(dead))
        )
    assert calls.charge(inbox) == ("failed", 0, 0, False)


def test_unexpected_exception_is_reported_and_settled(calls: ModelCalls) -> None:
    class Broken:
        def open(self, *_: object, **__: object) -> object:
            raise ZeroDivisionError

    inbox = calls.chat("!tokens 9")
    engine: Engine = replace(calls.executor.engine, router=Broken())  # type: ignore[arg-type]
    calls.execute(inbox, replace(calls.executor, engine=engine))
    failed = received(inbox)[-1]
    assert (failed.kind, json.loads(failed.data)["code"]) == (ReplyKind.FAILED, "provider_error")
    assert calls.charge(inbox)[0] == "failed"


def test_a_message_for_an_invocation_that_does_not_exist_does_nothing(calls: ModelCalls) -> None:
    inbox = calls.chat("hello")
    calls.execute(inbox)
    execute(calls.executor, replace(inbox.address, invocation_id=new_id()))
    assert calls.charge(inbox)[0] == "completed"
