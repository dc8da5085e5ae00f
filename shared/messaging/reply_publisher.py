"""Publish all replies of a worker's calls over one connection. Replies of the same few milliseconds are sent together.

Each step on a reply's way (here, in Valkey, in the web process) wakes a thread, which costs several times the work
itself. A reply after a pause is sent at once; replies within GATHER_SECONDS are sent together, in the order in
which they were put. Only a final reply waits for Valkey's response. Valkey's other responses are read before the
next send; they state whether the channel had a subscriber. If a web process's channel has the prefix BUNDLES, all
its replies of one send are one message, a bundle.
"""

import struct
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import redis

from shared.observability.telemetry import get_logger
from shared.runtime.periodic_thread import PeriodicThread

log = get_logger(__name__)

GATHER_SECONDS = 0.008
MAX_WAITING_BYTES = 8 << 20
"""Above this backlog a reply is not left to the thread: its caller sends and waits for Valkey."""


BUNDLES = "quartermaster:bundles:"
"""Prefix of the channels of web processes that read bundles."""
MAX_BUNDLE_BYTES = 256 << 10
_MARK = bytes(16)
"""Start of a bundle; any other message starts with the id of its invocation."""
_LENGTH = struct.Struct(">I")


class ReplySender(Protocol):
    """The sender of a message, which is notified whether the message had a subscriber."""

    has_listener: bool
    """Set to false after a message reached no subscriber or could not be sent."""


class ReplyMessage(NamedTuple):
    """A message with its channel and sender."""

    channel: str
    payload: bytes
    sender: ReplySender


def unbundle(message: bytes) -> Iterator[bytes]:
    """Yield the messages in a bundle, or the message itself if it is not a bundle."""
    if not message.startswith(_MARK):
        yield message
        return
    at = len(_MARK)
    while at < len(message):
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(message, at)[0]
        yield message[begin:at]


class Bundle(NamedTuple):
    """Messages for one channel that are published at once."""

    channel: str
    messages: list[ReplyMessage]

    @property
    def payload(self) -> bytes:
        """The content of the one message that contains all messages of the bundle."""
        if len(self.messages) == 1:
            return self.messages[0].payload
        pieces = [_MARK]
        for message in self.messages:
            pieces += _LENGTH.pack(len(message.payload)), message.payload
        return b"".join(pieces)


class ReplyPublisher:
    """The publisher of one process; thread-safe."""

    def __init__(self, valkey: redis.Redis) -> None:
        self._valkey = valkey
        self._pool: Any = valkey.connection_pool
        self._connection: Any = None
        self._waiting: list[ReplyMessage] = []
        self._waiting_bytes = 0
        self._unconfirmed: deque[Bundle] = deque()
        self._is_gathering = False
        self._sent_at = float("-inf")
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._thread = PeriodicThread(
            self._send_gathered, name="reply-lane", pause_seconds=0.0, has_work=lambda: self._waiting
        )

    def close(self) -> None:
        """Send all pending messages and release the connection."""
        self._thread.stop()
        self._send_waiting()
        with self._sending:
            self._release_connection()

    def publish(self, message: ReplyMessage) -> bool:
        """Send one message in one round trip. Return whether the message had a subscriber. Raises redis.RedisError."""
        return int(self._valkey.publish(message.channel, message.payload)) > 0

    @contextmanager
    def batched(self) -> Iterator[None]:
        """Send all messages that are put during the block together, at the end of the block."""
        self._is_gathering = True
        try:
            yield
        finally:
            self._is_gathering = False
            self._send_waiting()

    def put(self, message: ReplyMessage) -> None:
        """Send a message now, or together with other messages within GATHER_SECONDS."""
        with self._lock:
            is_first = not self._waiting
            self._waiting.append(message)
            self._waiting_bytes += len(message.payload)
            is_too_much = self._waiting_bytes > MAX_WAITING_BYTES
        # After a pause no other replies are gathering, so send immediately for the shortest delay.
        is_due = is_first and time.monotonic() - self._sent_at > GATHER_SECONDS
        if is_too_much or (is_due and not self._is_gathering):
            self._send_waiting()
        elif is_first and not self._is_gathering:
            self._thread.wake()

    def put_final(self, message: ReplyMessage) -> bool:
        """Send a message after all earlier ones. Return whether it had a subscriber. Raises redis.RedisError."""
        with self._lock:
            self._waiting.append(message)
        self._send_waiting()
        with self._sending:
            self._read_confirmations()
        return message.sender.has_listener or self.publish(message)  # a web process drops duplicates

    def _send_gathered(self) -> None:
        """Send the gathered messages every GATHER_SECONDS, until a round finds no message."""
        while not self._thread.is_stopping:
            # Sleep first, because the message that woke this thread may be the first of a burst.
            time.sleep(GATHER_SECONDS)
            if not self._send_waiting():
                return

    def _send_waiting(self) -> bool:
        """Send the pending messages. Return whether any message was pending."""
        with self._sending:
            with self._lock:
                messages, self._waiting = self._waiting, []
                self._waiting_bytes = 0
            if not messages:
                return False
            self._read_confirmations()
            self._send(messages)
            self._sent_at = time.monotonic()
        return True

    def _send(self, messages: list[ReplyMessage]) -> None:
        bundles = _bundle(messages)
        self._unconfirmed.extend(bundles)
        try:
            self._write(bundles)
        except redis.RedisError:
            self._send_again()

    def _read_confirmations(self) -> None:
        try:
            self._read()
        except redis.RedisError:
            self._send_again()

    def _send_again(self) -> None:
        """Send unconfirmed messages over a new connection; a web process drops duplicates."""
        self._release_connection()
        try:
            self._write(self._unconfirmed)
            self._read()
        except redis.RedisError as error:
            log.warning("replies.not_sent", messages=len(self._unconfirmed), error=str(error))
            for bundle in self._unconfirmed:
                _mark_without_listener(bundle)
            self._unconfirmed.clear()
            self._release_connection()

    def _write(self, bundles: Iterable[Bundle]) -> None:
        if self._connection is None:
            self._connection = self._pool.get_connection()
        commands = [("PUBLISH", bundle.channel, bundle.payload) for bundle in bundles]
        if commands:
            self._connection.send_packed_command(self._connection.pack_commands(commands))

    def _read(self) -> None:
        """Read the number of subscribers that each sent message had."""
        while self._unconfirmed:
            # Pop a message only after its response was read, so that after a failure it is sent again.
            if self._connection.read_response() == 0:
                _mark_without_listener(self._unconfirmed[0])
            self._unconfirmed.popleft()

    def _release_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
            self._pool.release(connection)


def _bundle(messages: Sequence[ReplyMessage]) -> list[Bundle]:
    """Group messages by channel into bundles of at most MAX_BUNDLE_BYTES; the order within a channel stays."""
    bundles: list[Bundle] = []
    open_bundles: dict[str, tuple[Bundle, int]] = {}
    for message in messages:
        bundle, size_bytes = open_bundles.get(message.channel, (None, 0))
        size_bytes += len(message.payload)
        if bundle is None or size_bytes > MAX_BUNDLE_BYTES or not message.channel.startswith(BUNDLES):
            bundle, size_bytes = Bundle(message.channel, []), len(message.payload)
            bundles.append(bundle)
        bundle.messages.append(message)
        open_bundles[message.channel] = bundle, size_bytes
    return bundles


def _mark_without_listener(bundle: Bundle) -> None:
    for message in bundle.messages:
        message.sender.has_listener = False
