"""A call's message equals Celery's own, and its form belongs to the queues' names."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import redis

from deploy.embedded.valkey import EmbeddedValkey
from shared.messaging.publisher import create_celery
from shared.messaging.queues import MODELS
from shared.messaging.replies import ReplyAddress
from shared.messaging.valkey import connect_valkey
from shared.models.queue.call_queue import TASK, QueuedCall, key_of, queue_of, read_entry, write_message
from tests.support.models.call_messages import forget_calls

CALL = QueuedCall(
    address=ReplyAddress(invocation_id=UUID(int=7), channel="quartermaster:replies:x"),
    provider='a "provider"',
    queue=queue_of('a "provider"', UUID(int=1)),
)
WRITTEN = (
    '{"body":"[[],{\\"channel\\":\\"quartermaster:replies:x\\",\\"provider\\":\\"p\\"},{}]",'
    '"content-encoding":"utf-8","content-type":"application/json",'
    '"headers":{"lang":"py","task":"models.invoke","id":"00000000-0000-0000-0000-000000000007",'
    '"root_id":"00000000-0000-0000-0000-000000000007","parent_id":null,"group":null,"retries":0,'
    '"ignore_result":true},'
    '"properties":{"correlation_id":"00000000-0000-0000-0000-000000000007","delivery_mode":2,'
    '"delivery_info":{"exchange":"","routing_key":"models.3"},"priority":0,'
    '"delivery_tag":"00000000-0000-0000-0000-000000000007"}}'
)


@pytest.fixture
def valkey(valkey_server: EmbeddedValkey) -> Iterator[redis.Redis]:
    with connect_valkey(valkey_server.url) as valkey:
        yield valkey
        forget_calls(valkey)


def sent_by_celery(valkey: redis.Redis, broker_url: str) -> dict[str, Any]:
    app = create_celery(broker_url)
    fields = {"channel": CALL.address.channel, "provider": CALL.provider}
    app.send_task(TASK, kwargs=fields, queue=CALL.queue, task_id=str(CALL.address.invocation_id))
    app.close()
    taken: Any = valkey.rpop(key_of(CALL.queue))
    message: dict[str, Any] = json.loads(taken)
    return message


def test_the_message_is_read_as_one_that_celery_sent(
    valkey: redis.Redis, valkey_server: EmbeddedValkey
) -> None:
    """If an upgrade breaks this test, write what kombu writes, under queues of another name."""
    theirs, ours = sent_by_celery(valkey, valkey_server.url), json.loads(write_message(CALL))
    assert ours.keys() == theirs.keys()
    for part in ("headers", "properties"):
        assert ours[part].keys() <= theirs[part].keys()
        told = {name for name in ours[part] if name not in {"delivery_tag", "ignore_result"}}
        assert {name: ours[part][name] for name in told} == {name: theirs[part][name] for name in told}
    assert (ours["content-type"], ours["content-encoding"]) == (
        theirs["content-type"],
        theirs["content-encoding"],
    )


def test_the_form_of_a_message_is_that_of_the_release_before() -> None:
    """Workers of both releases read these queues: another form needs queues of another name, and both are read."""
    assert MODELS[0] == "models.0"
    plain = replace(CALL, provider="p", queue="models.3")
    assert write_message(plain) == WRITTEN
    assert read_entry(WRITTEN.encode()) == plain


def test_message_round_trips_and_equal_calls_have_equal_messages() -> None:
    assert read_entry(write_message(CALL).encode()) == CALL
    assert write_message(CALL) == write_message(replace(CALL))
