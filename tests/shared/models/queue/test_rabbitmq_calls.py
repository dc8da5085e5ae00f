"""Model calls on RabbitMQ: their number and age from Valkey, and an unavailable broker."""

import time
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest
import redis

from shared.ids import new_id
from shared.messaging.broker import Broker
from shared.messaging.replies import ReplyAddress
from shared.models.catalog_file import CatalogFile
from shared.models.dialects import Dialect
from shared.models.queue import rabbitmq_calls
from shared.models.queue.call_queue import KEPT_SECONDS, AcceptedRequest
from shared.models.queue.rabbitmq_calls import BrokeredCallQueue, CallNotTaken
from shared.runtime.clock_skew import CLOCKS_APART_SECONDS

ENTRY = CatalogFile(None).current().entries[0]


@pytest.fixture
def queue(valkey: redis.Redis) -> Iterator[BrokeredCallQueue]:
    with closing(Broker.of("amqp://127.0.0.1:9/")) as broker:
        yield BrokeredCallQueue(valkey, broker)


@pytest.mark.parametrize(
    ("later_seconds", "waiting"), [(CLOCKS_APART_SECONDS, 1), (KEPT_SECONDS + CLOCKS_APART_SECONDS + 1, 0)]
)
def test_queued_call_is_forgotten_after_its_lifetime_by_any_clock(
    queue: BrokeredCallQueue, monkeypatch: pytest.MonkeyPatch, later_seconds: int, waiting: int
) -> None:
    request = AcceptedRequest(entry=ENTRY, dialect=Dialect.CHAT, is_stream=True, created=0, body={})
    address = ReplyAddress(invocation_id=new_id(), channel="quartermaster:replies:x")
    with pytest.raises(CallNotTaken):
        queue.put(address, request, organization_id=new_id())
    monkeypatch.setattr(
        rabbitmq_calls, "time", SimpleNamespace(time=lambda real=time.time: real() + later_seconds)
    )
    assert queue.count() == waiting
