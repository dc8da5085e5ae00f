"""Replies from workers to the front that waits: in order, never silently incomplete."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from deploy.embedded.valkey import EmbeddedValkey
from shared import replies
from shared.ids import new_id
from shared.replies import (
    Reply,
    ReplyAddress,
    ReplyKind,
    ReplyStream,
    ReplyWriter,
    cancel,
    find_cancelled,
    is_cancelled,
)

PATIENCE_SECONDS = 10


@pytest.fixture
def valkey(valkey_server: EmbeddedValkey) -> Iterator[redis.Redis]:
    """Connect to the run's Valkey."""
    with redis.Redis.from_url(valkey_server.url, socket_timeout=5) as client:
        yield client


@pytest.fixture
def stream(valkey: redis.Redis) -> Iterator[ReplyStream]:
    """A front's stream."""
    stream = ReplyStream(valkey)
    yield stream
    stream.close()


def test_replies_arrive_in_order_at_the_request_they_are_for(
    valkey: redis.Redis, stream: ReplyStream
) -> None:
    with stream.open(new_id()) as first, stream.open(new_id()) as second:
        writers = [ReplyWriter(valkey, inbox.address) for inbox in (first, second)]
        for number in range(50):
            for writer in writers:
                assert writer.send(ReplyKind.DATA, f"{number}".encode())
        for inbox in (first, second):
            received = [inbox.receive(PATIENCE_SECONDS) for _ in range(50)]
            assert received == [Reply(kind=ReplyKind.DATA, data=f"{number}".encode()) for number in range(50)]


def test_what_was_cancelled_is_found_among_others(valkey: redis.Redis) -> None:
    unwanted, wanted = new_id(), new_id()
    cancel(valkey, unwanted)
    assert find_cancelled(valkey, [wanted, unwanted]) == {unwanted}
    assert is_cancelled(valkey, unwanted)
    assert not is_cancelled(valkey, wanted)


def test_a_writer_learns_that_the_front_is_gone(valkey: redis.Redis) -> None:
    gone = ReplyAddress(stream="quartermaster:replies:of-a-front-that-died", invocation_id=new_id())
    assert not ReplyWriter(valkey, gone).send(ReplyKind.ALIVE)
    assert not valkey.exists(gone.stream), "a dead front's stream must not come back"


def test_a_request_is_told_when_valkey_has_forgotten_its_replies(
    valkey: redis.Redis, stream: ReplyStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "RENEWAL_SECONDS", 0.05)
    with stream.open(new_id()) as inbox:
        writer = ReplyWriter(valkey, inbox.address)
        writer.send(ReplyKind.ALIVE)
        assert inbox.receive(PATIENCE_SECONDS) == Reply(kind=ReplyKind.ALIVE)
        valkey.delete(inbox.address.stream)
        assert inbox.receive(PATIENCE_SECONDS) == Reply(kind=ReplyKind.LOST)
    with stream.open(new_id()) as next_inbox:
        ReplyWriter(valkey, next_inbox.address).send(ReplyKind.END, b"all")
        assert next_inbox.receive(PATIENCE_SECONDS) == Reply(kind=ReplyKind.END, data=b"all")


def test_a_gap_loses_the_rest(stream: ReplyStream) -> None:
    inbox = stream.open(new_id())
    inbox.deliver(0, Reply(kind=ReplyKind.DATA, data=b"first"))
    inbox.deliver(2, Reply(kind=ReplyKind.DATA, data=b"third"))
    inbox.deliver(3, Reply(kind=ReplyKind.END))
    kinds = [reply.kind for _ in range(2) if (reply := inbox.receive(PATIENCE_SECONDS))]
    assert kinds == [ReplyKind.DATA, ReplyKind.LOST]
    assert inbox.receive(0.01) is None


def test_a_request_that_takes_nothing_is_dropped_instead_of_growing(
    stream: ReplyStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "INBOX_LIMIT_BYTES", 100)
    inbox = stream.open(new_id())
    for number in range(10):
        inbox.deliver(number, Reply(kind=ReplyKind.DATA, data=b"x" * 60))
    kinds = []
    while reply := inbox.receive(0.01):
        kinds.append(reply.kind)
    assert kinds == [ReplyKind.DATA, ReplyKind.DATA, ReplyKind.LOST]
