"""The scripted provider: deterministic replies, exact usage, and scripted failures."""

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shared.models.catalog import ModelEntry
from shared.models.catalog_file import CatalogFile
from shared.models.dialects.requests import UPSTREAM_DIALECTS, Dialect
from shared.models.providers import script
from shared.models.providers.base import Event
from shared.models.providers.errors import CallCancelled, ProviderError, ProviderOverloaded, ProviderTimeout
from shared.models.providers.routing import Router
from tests.shared.models.providers.calls import NEVER, body, events_of, read, text_of, usage_of

README = Path(script.__file__).with_name("README.md").read_text()
BOTH = pytest.mark.parametrize("dialect", UPSTREAM_DIALECTS)


def scripted(dialect: Dialect) -> ModelEntry:
    name = "scripted/echo" if dialect is Dialect.CHAT else "scripted/echo-responses"
    found = CatalogFile(None).current().find(name)
    assert found is not None
    return found


def reply(router: Router, dialect: Dialect, text: str, **fields: Any) -> list[Event]:
    return events_of(router, scripted(dialect), text, stream_options={"include_usage": True}, **fields)


@BOTH
def test_it_repeats_the_prompt_and_counts_words(router: Router, dialect: Dialect) -> None:
    events = reply(router, dialect, "two words")
    assert text_of(events) == "You said: two words"
    usage = usage_of(events)
    assert usage is not None
    assert usage["total_tokens"] == 2 + 4


@BOTH
def test_it_is_deterministic(router: Router, dialect: Dialect) -> None:
    assert reply(router, dialect, "!tokens 5\n!tool f {}") == reply(router, dialect, "!tokens 5\n!tool f {}")


@BOTH
def test_directives_shape_the_reply(router: Router, dialect: Dialect) -> None:
    assert text_of(reply(router, dialect, "!say hello there")) == "hello there"
    assert text_of(reply(router, dialect, '!json {"a": 1}')) == '{"a": 1}'
    assert len(text_of(reply(router, dialect, "!tokens 100")).split()) == 100
    assert usage_of(reply(router, dialect, "!no-usage")) is None
    assert (
        text_of(reply(router, dialect, "!unknown thing\n!tokens many"))
        == "You said: !unknown thing !tokens many"
    )


@BOTH
@pytest.mark.parametrize(
    ("said", "replied"),
    [
        ("!tool weather {}\n!tool time {}", "The tool said: rain noon"),
        ("!tool weather {}\n!json {}", "{}"),
    ],
)
def test_tool_with_a_result_is_not_called_again(
    router: Router, dialect: Dialect, said: str, replied: str
) -> None:
    asked = {"role": "user", "content": said}
    messages = [asked, *({"role": "tool", "content": told} for told in ("rain", "noon"))]
    items = [asked, *({"type": "function_call_output", "output": told} for told in ("rain", "noon"))]
    events = reply(router, dialect, "", messages=messages, input=items)
    assert text_of(events) == replied
    assert "weather" not in str(events)


@BOTH
def test_a_new_text_calls_a_tool_anew(router: Router, dialect: Dialect) -> None:
    asked = {"role": "user", "content": "!tool weather {}"}
    messages = [asked, {"role": "tool", "content": "rain"}, asked]
    items = [asked, {"type": "function_call_output", "output": "rain"}, asked]
    assert "weather" in str(reply(router, dialect, "", messages=messages, input=items))


def test_chat_tools_arrive_in_pieces(router: Router) -> None:
    events = reply(router, Dialect.CHAT, '!tool weather {"city": "Rome"}\n!tool time {}')
    calls = [
        call
        for event in events
        for choice in event["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert (
        "".join(call["function"]["arguments"] for call in calls if call["index"] == 0) == '{"city": "Rome"}'
    )
    assert [call["function"]["name"] for call in calls if "id" in call] == ["weather", "time"]
    assert [choice["finish_reason"] for event in events for choice in event["choices"]][-1] == "tool_calls"


def test_responses_tools_are_items(router: Router) -> None:
    events = reply(router, Dialect.RESPONSES, "!tool weather {}\n!think about it")
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@BOTH
@pytest.mark.parametrize(
    "said", ["!tokens 5\n!think so", "!refuse", "!tool f {}", "!tokens 9\n!fail 500 after 3"]
)
def test_plain_reply_is_one_document_equal_to_the_stream(router: Router, dialect: Dialect, said: str) -> None:
    [document] = reply(router, dialect, said, stream=False)
    streamed = reply(router, dialect, said)
    assert usage_of([document]) == usage_of(streamed)
    if dialect is Dialect.RESPONSES:
        assert document == streamed[-1]["response"]
    elif "choices" in document:
        assert document["object"] == "chat.completion"
        assert text_of([document]) == text_of(streamed)
        last = [event for event in streamed if event["choices"]][-1]
        assert document["choices"][0]["finish_reason"] == last["choices"][0]["finish_reason"]
    else:
        assert document == streamed[-1]


@BOTH
@pytest.mark.parametrize("said", ["!break after 3", "!end after 3"])
def test_a_whole_reply_that_breaks_is_no_document(router: Router, dialect: Dialect, said: str) -> None:
    with pytest.raises(ProviderError) as raised:
        reply(router, dialect, f"!tokens 9\n{said}", stream=False)
    assert raised.value.may_have_cost


@BOTH
def test_limits_of_the_request_cut_the_reply(router: Router, dialect: Dialect) -> None:
    field = "max_output_tokens" if dialect is Dialect.RESPONSES else "max_completion_tokens"
    events = reply(router, dialect, "!tokens 10", **{field: 4})
    assert len(text_of(events).split()) == 4
    if dialect is Dialect.CHAT:
        reasons = [choice["finish_reason"] for event in events for choice in event["choices"]]
        assert [reason for reason in reasons if reason] == ["length"]
    else:
        assert events[-1]["type"] == "response.incomplete"
        assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_several_choices_and_logprobs(router: Router) -> None:
    events = reply(router, Dialect.CHAT, "!say one two", n=2, logprobs=True)
    usage = usage_of(events)
    assert usage is not None
    assert usage["completion_tokens"] == 4
    pieces = [choice for event in events for choice in event["choices"] if choice["delta"].get("content")]
    assert {choice["index"] for choice in pieces} == {0, 1}
    assert pieces[0]["logprobs"]["content"][0]["token"] == "one"


@BOTH
def test_it_fails_before_the_first_byte(router: Router, dialect: Dialect) -> None:
    with pytest.raises(ProviderError) as raised:
        reply(router, dialect, "!fail 500")
    assert raised.value.may_have_cost
    with pytest.raises(ProviderOverloaded) as overloaded:
        reply(router, dialect, "!fail 429 retry-after 60")
    assert overloaded.value.retry_after_seconds == 60


@BOTH
def test_it_fails_in_the_middle(router: Router, dialect: Dialect) -> None:
    events = reply(router, dialect, "!tokens 9\n!fail 500 after 3")
    assert text_of(events) == "word0 word1 word2"
    failed = events[-1] if dialect is Dialect.CHAT else events[-1]["response"]
    assert failed["error"]["code"] == ("scripted_failure" if dialect is Dialect.CHAT else "server_error")
    assert text_of(reply(router, dialect, "!tokens 9\n!end after 3")) == "word0 word1 word2"


@BOTH
def test_it_breaks_in_the_middle(router: Router, dialect: Dialect) -> None:
    events: list[Event] = []
    with (
        router.open(
            scripted(dialect), lambda _: body("!tokens 9\n!break after 3"), cancelled=NEVER
        ) as stream,
        pytest.raises(ProviderError) as raised,
    ):
        read(stream, events)
    assert text_of(events) == "word0 word1 word2"
    assert raised.value.may_have_cost


@BOTH
@pytest.mark.parametrize("text", ["!wait 60000", "!delay 60000", "!stall after 1"])
def test_it_keeps_deadlines_and_can_be_cancelled(router: Router, dialect: Dialect, text: str) -> None:
    def ask(cancelled: threading.Event, deadline_at: float) -> None:
        with router.open(
            scripted(dialect), lambda _: body(text), cancelled=cancelled, deadline_at=deadline_at
        ) as stream:
            list(stream)

    with pytest.raises(ProviderTimeout):
        ask(NEVER, time.monotonic() + 0.1)
    cancelled = threading.Event()
    timer = threading.Timer(0.1, cancelled.set)
    timer.start()
    with pytest.raises(CallCancelled):
        ask(cancelled, time.monotonic() + 60)
    timer.join()


def test_every_directive_is_described_and_every_description_is_one() -> None:
    assert set(re.findall(r"^\| `(![\w-]+)", README, re.MULTILINE)) == set(script._DIRECTIVES)
