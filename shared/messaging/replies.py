"""Transport replies from workers to the web process that waits for them, over one Valkey channel per web process.

One thread reads the channel for all requests, because a blocking read for each request costs five times the CPU. A
Valkey stream would store the replies, but costs twice the CPU in all processes. A channel stores nothing and
reports to the worker whether the channel has a subscriber. Replies may be lost, but not silently: they are
numbered, and the request is notified of a gap. Data that must survive is in Postgres.
"""

from __future__ import annotations

import queue
import struct
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

import redis

from shared.messaging.reply_publisher import BUNDLES, ReplyMessage, ReplyPublisher, unbundle
from shared.observability.telemetry import get_logger
from shared.runtime.deferred_responses import WakeUp
from shared.runtime.periodic_thread import PeriodicThread

log = get_logger(__name__)

READ_TIMEOUT_SECONDS = 1.0
PING_AFTER_SECONDS = 5.0
SUBSCRIBE_TIMEOUT_SECONDS = 2.0
INBOX_LIMIT_BYTES = 8 << 20
RETRY_SECONDS = 0.2
_HEAD = struct.Struct(">16sIc")


class ReplyKind(StrEnum):
    """The kind of a reply. In a message, the first letter of the kind represents it."""

    ALIVE = "alive"
    DATA = "data"
    END = "end"
    FAILED = "failed"
    LOST = "lost"


_KINDS = {kind[0].encode(): kind for kind in ReplyKind}
_LAST = frozenset({ReplyKind.END, ReplyKind.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply. Worker and web process agree on the content of `data`."""

    kind: ReplyKind
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyAddress:
    """The address to which a worker sends the replies of one invocation."""

    channel: str
    invocation_id: UUID


class Inbox:
    """The replies to one request, in order. Close it when the request no longer waits."""

    def __init__(self, channel: ReplyChannel, address: ReplyAddress) -> None:
        self.address = address
        self._channel = channel
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self._expected = 0
        # Count delivered and received bytes separately: only one thread writes each counter, so no lock is needed.
        # Their difference is the backlog.
        self._delivered_bytes = 0
        self._received_bytes = 0
        self._is_lost = False
        self._wake_up: WakeUp | None = None

    def attach(self, wake_up: WakeUp) -> None:
        """Attach a wake-up that is notified whenever a reply arrives."""
        self._wake_up = wake_up

    def receive(self, timeout_seconds: float) -> Reply | None:
        """Wait for the next reply; None on timeout. A LOST reply is the last one."""
        try:
            reply = self._replies.get(block=timeout_seconds > 0, timeout=timeout_seconds or None)
        except queue.Empty:
            return None
        self._received_bytes += len(reply.data)
        return reply

    def close(self) -> None:
        """Stop receiving."""
        self._channel.forget(self.address.invocation_id)

    def __enter__(self) -> Inbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def deliver(self, number: int, reply: Reply) -> None:
        """Accept a reply from the thread that reads the channel. That thread notifies the request afterwards.

        A duplicate is dropped. A gap, or a backlog above INBOX_LIMIT_BYTES, ends the inbox with LOST.
        """
        if self._is_lost or number < self._expected:
            return
        if number > self._expected or self._delivered_bytes - self._received_bytes > INBOX_LIMIT_BYTES:
            self.lose()
            return
        self._expected += 1
        self._delivered_bytes += len(reply.data)
        self._replies.put(reply)

    def lose(self) -> None:
        """End the inbox with a LOST reply, which means that replies are missing."""
        self._is_lost = True
        self._replies.put(Reply(kind=ReplyKind.LOST))
        self.notify()

    def notify(self) -> None:
        """Notify the attached wake-up that a reply was delivered."""
        if self._wake_up is not None:
            self._wake_up.notify()


class ReplyChannel:
    """The web process's side of the transport: its channel, and the thread that reads the channel."""

    def __init__(self, valkey: redis.Redis) -> None:
        """Create the channel; its thread starts with the first request, after the process has forked."""
        self._valkey = valkey
        self._name = f"{BUNDLES}{uuid4().hex}"
        self._inboxes: dict[bytes, Inbox] = {}
        self._lock = threading.Lock()
        self._reader = PeriodicThread(self._run_reader, name="reply-reader", pause_seconds=RETRY_SECONDS)
        self._is_subscribed = threading.Event()

    def close(self) -> None:
        """Stop reading."""
        self._reader.stop()

    def open(self, invocation_id: UUID) -> Inbox:
        """Return an inbox for an invocation; open it before a worker can know of the invocation.

        Raises redis.RedisError.
        """
        # Register the inbox before the call is sent, because the first reply may arrive before the sender returns.
        inbox = Inbox(self, ReplyAddress(channel=self._name, invocation_id=invocation_id))
        if not self._is_subscribed.is_set():
            self._begin()
        with self._lock:
            if not self._is_subscribed.is_set():
                raise redis.ConnectionError("the channel of replies is interrupted")
            self._inboxes[invocation_id.bytes] = inbox
        return inbox

    def forget(self, invocation_id: UUID) -> None:
        """Drop later replies of an invocation."""
        self._inboxes.pop(invocation_id.bytes, None)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for replies."""
        return len(self._inboxes)

    def _begin(self) -> None:
        self._reader.start()
        self._is_subscribed.wait(SUBSCRIBE_TIMEOUT_SECONDS)

    def _run_reader(self) -> None:
        try:
            self._read_channel()
        except redis.RedisError as error:
            log.warning("replies.interrupted", error=str(error))
        finally:
            self._lose_all()

    def _read_channel(self) -> None:
        """Read the channel until the connection breaks or the channel is closed."""
        pool: Any = self._valkey.connection_pool
        # Use a separate connection with a fixed timeout, because setting a timeout for each read costs as much as
        # the read. Use protocol 2, because with RESP3 the client formats a log line with the text of every pushed
        # reply.
        own = {"socket_timeout": READ_TIMEOUT_SECONDS, "protocol": 2}
        connection = pool.connection_class(**pool.connection_kwargs | own)
        try:
            connection.send_command("SUBSCRIBE", self._name)
            connection.read_response()
            self._is_subscribed.set()
            received_at = time.monotonic()
            pinged_at: float | None = None
            while not self._reader.is_stopping:
                # Take the time before the read: data that arrives while this thread is not scheduled is then read
                # next time and does not count as silence.
                read_at = time.monotonic()
                try:
                    message = connection.read_response(disconnect_on_error=False)
                except redis.TimeoutError:
                    if pinged_at is not None:
                        _require_answer(waited_seconds=read_at - pinged_at)
                    elif read_at - received_at > PING_AFTER_SECONDS:
                        connection.send_command("PING")
                        pinged_at = time.monotonic()
                else:
                    received_at, pinged_at = time.monotonic(), None
                    self._deliver(message)
        finally:
            connection.disconnect()

    def _deliver(self, response: Any) -> None:
        if response[0] != b"message":  # the response to a ping
            return
        # Notify each inbox only once, however many of its replies a bundle contains.
        notified: dict[bytes, Inbox] = {}
        for message in unbundle(response[2]):
            invocation, number, kind = _HEAD.unpack_from(message)
            inbox = self._inboxes.get(invocation)
            if inbox is not None:
                inbox.deliver(number, Reply(kind=_KINDS[kind], data=message[_HEAD.size :]))
                notified[invocation] = inbox
        for inbox in notified.values():
            inbox.notify()

    def _lose_all(self) -> None:
        """End every inbox with LOST; no request can open one until the channel is subscribed again."""
        with self._lock:
            self._is_subscribed.clear()
            # Copy the inboxes under the lock but end them outside, because lose() notifies other threads.
            inboxes = list(self._inboxes.values())
        for inbox in inboxes:
            inbox.lose()


def _require_answer(*, waited_seconds: float) -> None:
    if waited_seconds > PING_AFTER_SECONDS:
        raise redis.ConnectionError("the channel of replies is silent")


class ReplyWriter:
    """A worker's side of the transport, which numbers and sends the replies of one invocation.

    Streamed data and all later replies go through the process's publisher, which sends batches. Any other reply is
    one round trip. If sending the last reply fails, it is sent once more, because without it the whole response
    would be lost.
    """

    def __init__(self, publisher: ReplyPublisher, address: ReplyAddress) -> None:
        self._publisher = publisher
        self._address = address
        self._sent = 0
        self._is_streaming = False
        self._is_over = False
        self._lock = threading.Lock()
        self.has_listener = True

    def send(self, kind: ReplyKind, data: bytes = b"") -> bool:
        """Send a reply. Return False if the channel is known to have no subscriber. Raises redis.RedisError."""
        with self._lock:
            if self._is_over:
                return False
            head = _HEAD.pack(self._address.invocation_id.bytes, self._sent, kind[0].encode())
            self._sent += 1
            self._is_over = kind in _LAST
            self._is_streaming |= kind is ReplyKind.DATA
            return self._post(ReplyMessage(self._address.channel, head + data, self))

    def close(self) -> None:
        """Send no further replies. Earlier replies are still delivered."""
        with self._lock:
            self._is_over = True

    def _post(self, message: ReplyMessage) -> bool:
        if not self._is_over:
            if not self._is_streaming:
                return self._publisher.publish(message)
            self._publisher.put(message)
            return self.has_listener
        if self._is_streaming:
            return self._publisher.put_final(message)
        try:
            return self._publisher.publish(message)
        except redis.RedisError:
            return self._publisher.publish(message)
