"""Replies from workers to the waiting web process: in order, and never silently incomplete."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from types import SimpleNamespace

import pytest
import redis

from deploy.embedded.valkey import EmbeddedValkey
from shared.ids import new_id
from shared.messaging import replies, reply_publisher
from shared.messaging.replies import Inbox, Reply, ReplyAddress, ReplyChannel, ReplyKind, ReplyWriter
from shared.messaging.reply_publisher import BUNDLES, Bundle, ReplyMessage, ReplyPublisher, unbundle
from shared.messaging.valkey import connect_valkey
from shared.models.queue.call_queue import cancel, find_cancelled, is_cancelled
from shared.runtime.deferred_responses import WakeUp
from tests.support.processes.stack import free_port, wait_until

PATIENCE_SECONDS = 60


@pytest.fixture
def valkey(valkey_server: EmbeddedValkey) -> Iterator[redis.Redis]:
    """Connect to the run's Valkey, as the service does."""
    with connect_valkey(valkey_server.url) as client:
        yield client


@pytest.fixture
def publisher(valkey: redis.Redis) -> Iterator[ReplyPublisher]:
    """A worker's publisher."""
    publisher = ReplyPublisher(valkey)
    yield publisher
    publisher.close()


@pytest.fixture
def channel(valkey: redis.Redis) -> Iterator[ReplyChannel]:
    """Return a web process's channel."""
    channel = ReplyChannel(valkey)
    yield channel
    channel.close()


def test_replies_arrive_in_order_at_the_request_they_are_for(
    publisher: ReplyPublisher, channel: ReplyChannel
) -> None:
    with channel.open(new_id()) as first, channel.open(new_id()) as second:
        writers = [ReplyWriter(publisher, inbox.address) for inbox in (first, second)]
        for number in range(50):
            for writer in writers:
                assert writer.send(ReplyKind.DATA, f"{number}".encode())
        for writer in writers:
            assert writer.send(ReplyKind.END)
        for inbox in (first, second):
            received = [inbox.receive(PATIENCE_SECONDS) for _ in range(51)]
            said = [Reply(kind=ReplyKind.DATA, data=f"{number}".encode()) for number in range(50)]
            assert received == [*said, Reply(kind=ReplyKind.END)]


def test_a_reply_of_any_bytes_and_a_large_one_arrive_whole(
    publisher: ReplyPublisher, channel: ReplyChannel
) -> None:
    contents = [bytes(range(256)), b"x" * (4 << 20), b""]
    with channel.open(new_id()) as inbox:
        writer = ReplyWriter(publisher, inbox.address)
        for content in contents:
            writer.send(ReplyKind.DATA, content)
        writer.close()
        received = [inbox.receive(PATIENCE_SECONDS) for _ in contents]
    assert [reply.data for reply in received if reply is not None] == contents


def test_reply_content_is_in_no_log_at_any_level(
    publisher: ReplyPublisher, channel: ReplyChannel, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), channel.open(new_id()) as inbox:
        writer = ReplyWriter(publisher, inbox.address)
        assert writer.send(ReplyKind.DATA, b"what the model said")
        assert writer.send(ReplyKind.END, b"and its last words")
        for said in (b"what the model said", b"and its last words"):
            reply = inbox.receive(PATIENCE_SECONDS)
            assert reply is not None
            assert reply.data == said
    assert [record for record in caplog.messages if "said" in record or "words" in record] == []


def test_streams_of_a_process_share_a_connection(valkey: redis.Redis, channel: ReplyChannel) -> None:
    with connect_valkey(valkey_url(valkey), max_connections=1, timeout_seconds=PATIENCE_SECONDS) as narrow:
        publisher = ReplyPublisher(narrow)
        with channel.open(new_id()) as first, channel.open(new_id()) as second:
            writers = [ReplyWriter(publisher, inbox.address) for inbox in (first, second)]
            for writer in writers:
                assert writer.send(ReplyKind.DATA, b"some")
            for writer in writers:
                assert writer.send(ReplyKind.END)
            for inbox in (first, second):
                kinds = [reply.kind for _ in range(2) if (reply := inbox.receive(PATIENCE_SECONDS))]
                assert kinds == [ReplyKind.DATA, ReplyKind.END]
        publisher.close()
        assert narrow.ping()


def test_a_writer_that_was_closed_sends_no_more(publisher: ReplyPublisher, channel: ReplyChannel) -> None:
    with channel.open(new_id()) as inbox, closing(ReplyWriter(publisher, inbox.address)) as writer:
        writer.send(ReplyKind.DATA, b"some")
    assert not writer.send(ReplyKind.ALIVE)


def test_replies_that_follow_each_other_closely_are_sent_together(
    publisher: ReplyPublisher, channel: ReplyChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    write = ReplyPublisher._write

    def counted(publisher: ReplyPublisher, bundles: Sequence[Bundle]) -> None:
        sent.append(sum(len(bundle.messages) for bundle in bundles))
        write(publisher, bundles)

    monkeypatch.setattr(ReplyPublisher, "_write", counted)
    monkeypatch.setattr(reply_publisher, "GATHER_SECONDS", 0.1)
    with channel.open(new_id()) as inbox:
        writer = ReplyWriter(publisher, inbox.address)
        for _ in range(200):
            writer.send(ReplyKind.DATA, b"some")
        writer.send(ReplyKind.END)
        kinds = [reply.kind for _ in range(201) if (reply := inbox.receive(PATIENCE_SECONDS))]
    assert kinds == [*[ReplyKind.DATA] * 200, ReplyKind.END]
    assert sum(sent) == 201
    assert len(sent) < 100


def test_streams_from_many_threads_arrive_whole_and_in_order(
    publisher: ReplyPublisher, channel: ReplyChannel
) -> None:
    inboxes = [channel.open(new_id()) for _ in range(8)]

    def stream(inbox: Inbox) -> None:
        writer = ReplyWriter(publisher, inbox.address)
        for number in range(100):
            writer.send(ReplyKind.DATA, f"{number}".encode())
            time.sleep(number % 7 / 2000)
        writer.send(ReplyKind.END)

    threads = [threading.Thread(target=stream, args=(inbox,)) for inbox in inboxes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for inbox in inboxes:
        replies = [inbox.receive(PATIENCE_SECONDS) for _ in range(101)]
        assert [reply.data for reply in replies if reply] == [*(f"{n}".encode() for n in range(100)), b""]
        inbox.close()


def test_replies_on_a_broken_connection_are_sent_again(
    valkey: redis.Redis, publisher: ReplyPublisher, channel: ReplyChannel
) -> None:
    with channel.open(new_id()) as inbox:
        writer = ReplyWriter(publisher, inbox.address)
        for number in range(5):
            assert writer.send(ReplyKind.DATA, f"{number}".encode())
            valkey.client_kill_filter(_type="normal", skipme=True)
        assert writer.send(ReplyKind.END)
        replies = [inbox.receive(PATIENCE_SECONDS) for _ in range(6)]
    assert [reply.data for reply in replies if reply] == [b"0", b"1", b"2", b"3", b"4", b""]


def test_streams_end_whose_replies_cannot_be_sent() -> None:
    with connect_valkey(f"redis://127.0.0.1:{free_port()}") as dead:
        writer = ReplyWriter(ReplyPublisher(dead), ReplyAddress(channel="x", invocation_id=new_id()))
        assert not writer.send(ReplyKind.DATA, b"some")
        with pytest.raises(redis.ConnectionError):
            writer.send(ReplyKind.END)


def valkey_url(valkey: redis.Redis) -> str:
    known = valkey.connection_pool.connection_kwargs
    return f"redis://:{known['password']}@{known['host']}:{known['port']}/0"


def test_cancelled_call_is_found_among_others(valkey: redis.Redis) -> None:
    unwanted, wanted = new_id(), new_id()
    cancel(valkey, unwanted)
    assert find_cancelled(valkey, [wanted, unwanted]) == {unwanted}
    assert is_cancelled(valkey, unwanted)
    assert not is_cancelled(valkey, wanted)


def test_a_writer_learns_with_its_next_replies_that_the_front_is_gone(publisher: ReplyPublisher) -> None:
    gone = ReplyAddress(channel="quartermaster:replies:of-a-front-that-died", invocation_id=new_id())
    with closing(ReplyWriter(publisher, gone)) as writer:
        assert writer.send(ReplyKind.DATA, b"one")
        wait_until(lambda: not writer.send(ReplyKind.DATA, b"two"), "it has learnt")
        assert not writer.send(ReplyKind.END)
    assert not ReplyWriter(publisher, gone).send(ReplyKind.END, b"a whole answer")


def test_the_last_reply_outlives_a_connection_that_broke(
    valkey: redis.Redis, publisher: ReplyPublisher, channel: ReplyChannel
) -> None:
    with channel.open(new_id()) as inbox:
        writer = ReplyWriter(publisher, inbox.address)
        writer.send(ReplyKind.DATA, b"some")
        valkey.client_kill_filter(_type="normal", skipme=True)
        assert writer.send(ReplyKind.END, b"all")
        received = [inbox.receive(PATIENCE_SECONDS) for _ in range(2)]
    assert [reply.kind for reply in received if reply] == [ReplyKind.DATA, ReplyKind.END]


def test_interruption_is_reported_to_waiting_requests_only(
    valkey: redis.Redis, publisher: ReplyPublisher, channel: ReplyChannel
) -> None:
    with channel.open(new_id()) as first, channel.open(new_id()) as second:
        assert ReplyWriter(publisher, first.address).send(ReplyKind.END)
        assert first.receive(PATIENCE_SECONDS) == Reply(kind=ReplyKind.END)
        valkey.client_kill_filter(_type="pubsub")
        for inbox in (first, second):
            assert inbox.receive(PATIENCE_SECONDS) == Reply(kind=ReplyKind.LOST)
    with channel.open(new_id()) as next_inbox:
        ReplyWriter(publisher, next_inbox.address).send(ReplyKind.END, b"all")
        assert next_inbox.receive(PATIENCE_SECONDS) == Reply(kind=ReplyKind.END, data=b"all")


def pings(valkey: redis.Redis) -> int:
    """Count the pings that the server has had."""
    stats: dict[str, dict[str, int]] = valkey.info("commandstats")
    return stats.get("cmdstat_ping", {"calls": 0})["calls"]


def test_channel_is_pinged_before_it_is_dropped_after_a_suspended_process(
    valkey: redis.Redis, publisher: ReplyPublisher, channel: ReplyChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "READ_TIMEOUT_SECONDS", 0.01)
    stood_still_seconds = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + stood_still_seconds)
    monkeypatch.setattr(replies, "time", clock)
    before = pings(valkey)
    with channel.open(new_id()) as inbox:
        stood_still_seconds = 60.0
        wait_until(lambda: pings(valkey) > before, "it was asked")
        ReplyWriter(publisher, inbox.address).send(ReplyKind.END, b"all")
        assert inbox.receive(PATIENCE_SECONDS) == Reply(kind=ReplyKind.END, data=b"all")


def test_silent_channel_is_pinged_and_stays_open(
    valkey: redis.Redis, publisher: ReplyPublisher, channel: ReplyChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "READ_TIMEOUT_SECONDS", 0.01)
    monkeypatch.setattr(replies, "PING_AFTER_SECONDS", 0.2)
    before = pings(valkey)
    with channel.open(new_id()) as inbox:
        wait_until(lambda: pings(valkey) >= before + 3, "it was asked")
        ReplyWriter(publisher, inbox.address).send(ReplyKind.END, b"all")
        assert inbox.receive(PATIENCE_SECONDS) == Reply(kind=ReplyKind.END, data=b"all")


def test_call_does_not_wait_for_replies_that_cannot_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "SUBSCRIBE_TIMEOUT_SECONDS", 0.05)
    with connect_valkey(f"redis://127.0.0.1:{free_port()}") as dead:
        channel = ReplyChannel(dead)
        with pytest.raises(redis.ConnectionError):
            channel.open(new_id())
        assert channel.waiting == 0
        channel.close()


def test_a_gap_loses_the_rest_and_a_reply_sent_again_is_dropped(channel: ReplyChannel) -> None:
    inbox = channel.open(new_id())
    inbox.deliver(0, Reply(kind=ReplyKind.DATA, data=b"first"))
    inbox.deliver(0, Reply(kind=ReplyKind.DATA, data=b"first"))
    inbox.deliver(2, Reply(kind=ReplyKind.DATA, data=b"third"))
    inbox.deliver(3, Reply(kind=ReplyKind.END))
    kinds = [reply.kind for _ in range(2) if (reply := inbox.receive(PATIENCE_SECONDS))]
    assert kinds == [ReplyKind.DATA, ReplyKind.LOST]
    assert inbox.receive(0.01) is None


def test_a_request_that_takes_nothing_is_dropped_instead_of_growing(
    channel: ReplyChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "INBOX_LIMIT_BYTES", 100)
    inbox = channel.open(new_id())
    for number in range(10):
        inbox.deliver(number, Reply(kind=ReplyKind.DATA, data=b"x" * 60))
    kinds = []
    while reply := inbox.receive(0.01):
        kinds.append(reply.kind)
    assert kinds == [ReplyKind.DATA, ReplyKind.DATA, ReplyKind.LOST]


def test_what_is_put_together_reaches_a_front_in_one_message(
    publisher: ReplyPublisher, channel: ReplyChannel
) -> None:
    rung: list[ReplyAddress] = []
    with channel.open(new_id()) as first, channel.open(new_id()) as second:
        for inbox in (first, second):
            wake_up = WakeUp()
            wake_up.wake_through(partial(rung.append, inbox.address))
            inbox.attach(wake_up)
        writers = [ReplyWriter(publisher, inbox.address) for inbox in (first, second)]
        with publisher.batched():
            for data in (b"one", b"two"):
                for writer in writers:
                    assert writer.send(ReplyKind.DATA, data)
            assert first.receive(0.1) is None
        for inbox in (first, second):
            received = [inbox.receive(PATIENCE_SECONDS) for _ in range(2)]
            assert [reply and reply.data for reply in received] == [b"one", b"two"]
        assert rung == [first.address, second.address]


@pytest.mark.parametrize("name", ["quartermaster:replies:of-the-release-before", f"{BUNDLES}of-this-one"])
def test_only_a_front_that_reads_bundles_gets_them(
    valkey: redis.Redis, publisher: ReplyPublisher, name: str
) -> None:
    said = [bytes([number]) * (number * 1000 + 17) for number in range(1, 5)]
    with valkey.pubsub() as heard:  # type: ignore[no-untyped-call]
        heard.subscribe(name)
        heard.get_message(timeout=PATIENCE_SECONDS)
        with publisher.batched():
            for message in said:
                publisher.put(
                    ReplyMessage(
                        name,
                        message,
                        ReplyWriter(publisher, ReplyAddress(channel=name, invocation_id=new_id())),
                    )
                )
        published: list[bytes] = []
        while sum(1 for message in published for _ in unbundle(message)) < len(said):
            published.append(heard.get_message(timeout=PATIENCE_SECONDS)["data"])
    assert [each for message in published for each in unbundle(message)] == said
    assert len(published) == (1 if name.startswith(BUNDLES) else len(said))


def test_a_bundle_has_a_largest_size(valkey: redis.Redis) -> None:
    address = ReplyAddress(channel=f"{BUNDLES}x", invocation_id=new_id())
    sender = ReplyWriter(ReplyPublisher(valkey), address)
    messages = [
        ReplyMessage(address.channel, b"x" * (reply_publisher.MAX_BUNDLE_BYTES // 2), sender)
        for _ in range(5)
    ]
    assert [len(bundle.messages) for bundle in reply_publisher._bundle(messages)] == [2, 2, 1]
