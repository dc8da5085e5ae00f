"""A reply shows its cost: the ledger's charge for the usage that it shows."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from shared.credits.amounts import MICRO, format_credits
from shared.credits.sweeps import mark_unresolved, settle_unresolved
from shared.messaging.replies import Inbox, ReplyKind
from shared.models.catalog import Catalog, ModelEntry, ProviderEntry, ProviderKind, Upstream
from shared.models.dialects import UPSTREAM_DIALECTS, Dialect, ParsedRequest, parse_chat, parse_responses
from shared.models.dialects.token_counts import read_usage
from shared.models.invocations import invoke
from tests.shared.models.model_calls import ModelCalls, data_of, received
from tests.support.models.prices import prices_of
from tests.support.models.upstream_scripts import Script
from tests.support.models.upstreams import FakeUpstream

PRICES = prices_of(
    prompt=2 * MICRO,
    completion=3 * MICRO,
    cached_prompt=5 * MICRO,
    cache_write=7 * MICRO,
    reasoning=11 * MICRO,
    request=13,
)
_CHAT = {"model": "scripted/chat", "messages": [{"role": "user", "content": "hello"}]}
_RESPONSE = {"model": "scripted/chat", "input": "hello", "store": False}
REQUESTS = {
    "chat": parse_chat(_CHAT),
    "chat stream": parse_chat({**_CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    "responses": parse_responses(_RESPONSE),
    "responses stream": parse_responses({**_RESPONSE, "stream": True}),
}
ASKED = pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
SPOKEN = pytest.mark.parametrize("dialect", UPSTREAM_DIALECTS)


@pytest.fixture(autouse=True)
def _everything_adds_up(calls: ModelCalls) -> Iterator[None]:
    """After each test nothing is held any more, and all books agree."""
    yield
    assert calls.balance.held == 0
    assert calls.discrepancies() == []


def entry_at(calls: ModelCalls, upstream: FakeUpstream, dialect: Dialect) -> ModelEntry:
    provider = ProviderEntry(name="fake", kind=ProviderKind.OPENAI_COMPATIBLE, base_url=upstream.base_url)
    at = Upstream(provider=provider, model="m", dialect=dialect, streams_only=False)
    return replace(calls.executor.catalog.current().entries[0], upstreams=(at,), prices=PRICES)


def answered(calls: ModelCalls, script: Script, request: ParsedRequest, dialect: Dialect) -> Inbox:
    """A call to an upstream of this script, carried out."""
    with FakeUpstream(script) as upstream:
        catalog = Catalog([entry_at(calls, upstream, dialect)])
        inbox = invoke(calls.invoker, catalog, calls.caller, request)
        calls.execute(inbox)
    return inbox


def told_usage(inbox: Inbox) -> dict[str, Any]:
    """The last usage that a client reads."""
    replies = received(inbox)
    assert replies[-1].kind is ReplyKind.END
    said = data_of(replies)
    if said.startswith("{"):
        usage = json.loads(said)["usage"]
    else:
        lines = [line.removeprefix("data: ") for line in said.splitlines() if line.startswith("data: {")]
        last = json.loads(lines[-1])
        usage = last.get("response", last)["usage"]
    assert isinstance(usage, dict)
    return usage


@ASKED
@SPOKEN
def test_reply_shows_the_ledgers_charge(calls: ModelCalls, request_: ParsedRequest, dialect: Dialect) -> None:
    script = Script(prompt_tokens=100, cached_tokens=20, cache_write_tokens=30, reasoning_tokens=1)
    inbox = answered(calls, script, request_, dialect)
    record = calls.record(inbox)
    assert record is not None
    assert record["cost"] == 50 * 2 + 20 * 5 + 30 * 7 + 2 * 3 + 1 * 11 + 13
    assert told_usage(inbox)["cost"] == format_credits(record["cost"])
    assert record["cache_write_tokens"] == 30


@ASKED
@SPOKEN
def test_implausible_report_is_replaced_by_an_estimate_of_the_delivered_reply(
    calls: ModelCalls, request_: ParsedRequest, dialect: Dialect
) -> None:
    inbox = answered(calls, Script(prompt_tokens=10**15, chunks=8), request_, dialect)
    record = calls.record(inbox)
    assert record is not None
    assert record["is_estimated"]
    assert record["completion_tokens"] == 12
    usage = told_usage(inbox)
    counts = read_usage(usage)
    assert counts is not None
    assert (counts.prompt_tokens, counts.completion_tokens) == (
        record["prompt_tokens"],
        record["completion_tokens"],
    )
    assert usage["cost"] == format_credits(record["cost"])


def test_cost_is_hidden_if_the_operator_disables_it(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 9", stream=False)
    engine = replace(calls.executor.engine, shows_cost=False)
    calls.execute(inbox, replace(calls.executor, engine=engine))
    assert "cost" not in told_usage(inbox)


def test_reply_of_a_call_settled_before_its_end_shows_that_charge(calls: ModelCalls) -> None:
    inbox = calls.chat("!tokens 40\n!delay 25\n!no-usage", stream_options={"include_usage": True})
    with calls.executing(inbox):
        begun = [inbox.receive(10.0)]
        with calls.invoker.database.transaction() as session:
            session.execute(text("UPDATE invocations SET lease_until = now(), streamed_tokens = 3"))
        mark_unresolved(calls.invoker.database)
        settle_unresolved(calls.invoker.database, grace=timedelta(0))
    assert begun[0] is not None
    record = calls.record(inbox)
    assert record is not None
    assert record["completion_tokens"] == 3
    assert told_usage(inbox)["cost"] == format_credits(record["cost"])
