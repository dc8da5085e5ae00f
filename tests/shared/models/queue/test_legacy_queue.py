"""Calls that fronts of the release before have queued: they join the others, and nothing else is made of them."""

import logging
from typing import Any

import pytest

from shared.messaging.replies import ReplyKind
from shared.messaging.valkey import connect_valkey
from shared.models.queue.call_queue import CallQueue
from shared.models.queue.legacy_queue import ASIDE, LISTS, FormerCalls
from tests.shared.models.model_calls import ModelCalls, received
from tests.support.call_messages import take_call
from tests.support.stack import free_port


@pytest.mark.parametrize("key", [LISTS[-1], f"{ASIDE}:scripted"])
def test_a_call_of_a_former_list_is_made(calls: ModelCalls, key: str) -> None:
    inbox = calls.chat("!tokens 3")
    queued = take_call(calls.valkey)
    assert queued is not None
    entry: Any = queued.address.invocation_id.bytes + queued.address.channel.encode() + b"\0scripted"
    calls.valkey.lpush(key, entry)
    calls.valkey.sadd(ASIDE, "scripted")
    FormerCalls(calls.valkey, CallQueue(calls.valkey)).look()
    assert take_call(calls.valkey) is not None
    assert calls.valkey.llen(key) == 0
    calls.execute(inbox)
    assert received(inbox)[-1].kind is ReplyKind.END


def test_a_look_at_a_valkey_that_is_away_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with connect_valkey(f"redis://127.0.0.1:{free_port()}") as dead, caplog.at_level(logging.DEBUG):
        FormerCalls(dead, CallQueue(dead)).look()
    (line,) = [line for line in caplog.records if line.getMessage() == "former_calls.not_moved"]
    assert line.exc_info is None
