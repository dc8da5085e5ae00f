"""One connection over which a worker publishes what its calls stream: the replies of a few milliseconds at once.

Each step of a reply's way (here, in Valkey, in the front) wakes a thread, and that costs several times what is then
done. A reply that comes after a pause is sent at once; those that follow within `GATHER_SECONDS` are sent together.
Replies stay in the order in which they were put. Nothing waits for Valkey's answers but a last reply; the others are
read before the next are sent, and tell whether anybody has listened. A front that reads bundles, as the name of its
channel says, gets all that is for it in one message.
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
"""Beyond this a reply is not left to the thread; who puts it waits for Valkey."""


BUNDLES = "quartermaster:bundles:"
"""The channels of fronts that read bundles begin so."""
MAX_BUNDLE_BYTES = 256 << 10
_MARK = bytes(16)
"""Begins a bundle; any other message begins with the id of its invocation."""
_LENGTH = struct.Struct(">I")


class Sender(Protocol):
    """The sender of letters: what it learns of them."""

    has_listener: bool
    """Set to false once nobody has listened to one of its letters, or one could not be sent."""


class ReplyMessage(NamedTuple):
    """A message on its way."""

    channel: str
    message: bytes
    sender: Sender


def unbundle(message: bytes) -> Iterator[bytes]:
    """Give the messages of a bundle, or a message that is none."""
    if not message.startswith(_MARK):
        yield message
        return
    at = len(_MARK)
    while at < len(message):
        begin = at + _LENGTH.size
        at = begin + _LENGTH.unpack_from(message, at)[0]
        yield message[begin:at]


class Bundle(NamedTuple):
    """What is published at once: letters to one channel."""

    channel: str
    letters: list[ReplyMessage]

    @property
    def message(self) -> bytes:
        """The message that carries them."""
        if len(self.letters) == 1:
            return self.letters[0].message
        pieces = [_MARK]
        for letter in self.letters:
            pieces += _LENGTH.pack(len(letter.message)), letter.message
        return b"".join(pieces)


class ReplyPublisher:
    """The lane of one process; safe to share between threads."""

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
        """Send what waits, and give the connection back."""
        self._thread.stop()
        self._send_waiting()
        with self._sending:
            self._release_connection()

    def publish(self, letter: ReplyMessage) -> bool:
        """Send by itself, and tell whether anybody has listened. Raises redis.RedisError."""
        return int(self._valkey.publish(letter.channel, letter.message)) > 0

    @contextmanager
    def batched(self) -> Iterator[None]:
        """Send at the end of the block what is put within it."""
        self._is_gathering = True
        try:
            yield
        finally:
            self._is_gathering = False
            self._send_waiting()

    def put(self, letter: ReplyMessage) -> None:
        """Send now, or with others within milliseconds."""
        with self._lock:
            is_first = not self._waiting
            self._waiting.append(letter)
            self._waiting_bytes += len(letter.message)
            is_too_much = self._waiting_bytes > MAX_WAITING_BYTES
        is_due = is_first and time.monotonic() - self._sent_at > GATHER_SECONDS
        if is_too_much or (is_due and not self._is_gathering):
            self._send_waiting()
        elif is_first and not self._is_gathering:
            self._thread.wake()

    def put_final(self, letter: ReplyMessage) -> bool:
        """Send behind all that was put, and tell whether anybody has listened. Raises redis.RedisError."""
        with self._lock:
            self._waiting.append(letter)
        self._send_waiting()
        with self._sending:
            self._read_confirmations()
        return letter.sender.has_listener or self.publish(letter)  # a front drops what comes twice

    def _send_gathered(self) -> None:
        """Send what gathers, every few milliseconds, until nothing has."""
        while not self._thread.is_stopping:
            time.sleep(GATHER_SECONDS)
            if not self._send_waiting():
                return

    def _send_waiting(self) -> bool:
        """Send what waits; tell whether anything did."""
        with self._sending:
            with self._lock:
                letters, self._waiting = self._waiting, []
                self._waiting_bytes = 0
            if not letters:
                return False
            self._read_confirmations()
            self._send(letters)
            self._sent_at = time.monotonic()
        return True

    def _send(self, letters: list[ReplyMessage]) -> None:
        bundles = _bundle(letters)
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
        """Send what was not answered over a new connection; a front drops what it has heard already."""
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
        commands = [("PUBLISH", bundle.channel, bundle.message) for bundle in bundles]
        if commands:
            self._connection.send_packed_command(self._connection.pack_commands(commands))

    def _read(self) -> None:
        """Read how many have heard each message that was sent."""
        while self._unconfirmed:
            if self._connection.read_response() == 0:
                _mark_without_listener(self._unconfirmed[0])
            self._unconfirmed.popleft()

    def _release_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
            self._pool.release(connection)


def _bundle(letters: Sequence[ReplyMessage]) -> list[Bundle]:
    """Bundle what is for one channel, as far as it is small and the front reads bundles; orders stay."""
    bundles: list[Bundle] = []
    open_bundles: dict[str, tuple[Bundle, int]] = {}
    for letter in letters:
        bundle, size_bytes = open_bundles.get(letter.channel, (None, 0))
        size_bytes += len(letter.message)
        if bundle is None or size_bytes > MAX_BUNDLE_BYTES or not letter.channel.startswith(BUNDLES):
            bundle, size_bytes = Bundle(letter.channel, []), len(letter.message)
            bundles.append(bundle)
        bundle.letters.append(letter)
        open_bundles[letter.channel] = bundle, size_bytes
    return bundles


def _mark_without_listener(bundle: Bundle) -> None:
    for letter in bundle.letters:
        letter.sender.has_listener = False
