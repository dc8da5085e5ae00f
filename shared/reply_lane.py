"""One connection over which a worker publishes what its calls stream: the replies of a few milliseconds at once.

Each step of a reply's way (here, in Valkey, in the front) wakes a thread, and that costs several times what is then
done. A reply that comes after a pause is sent at once; those that follow within `GATHER_SECONDS` are sent together.
Replies stay in the order in which they were put. Nothing waits for Valkey's answers but a last reply; the others are
read before the next are sent, and tell whether anybody has listened.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import redis

from shared.periodic_thread import PeriodicThread
from shared.telemetry import get_logger

log = get_logger(__name__)

GATHER_SECONDS = 0.008
MAX_WAITING_BYTES = 8 << 20
"""Beyond this a reply is not left to the thread; who puts it waits for Valkey."""


class Sender(Protocol):
    """The sender of letters: what it learns of them."""

    is_heard: bool
    """Set to false once nobody has listened to one of its letters, or one could not be sent."""


class Letter(NamedTuple):
    """A message on its way."""

    channel: str
    message: bytes
    sender: Sender


class ReplyLane:
    """The lane of one process; safe to share between threads."""

    def __init__(self, valkey: redis.Redis) -> None:
        self._valkey = valkey
        self._pool: Any = valkey.connection_pool
        self._connection: Any = None
        self._waiting: list[Letter] = []
        self._waiting_bytes = 0
        self._unanswered: deque[Letter] = deque()
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
            self._let_go()

    def publish(self, letter: Letter) -> bool:
        """Send by itself, and tell whether anybody has listened. Raises redis.RedisError."""
        return int(self._valkey.publish(letter.channel, letter.message)) > 0

    def put(self, letter: Letter) -> None:
        """Send now, or with others within milliseconds."""
        with self._lock:
            is_first = not self._waiting
            self._waiting.append(letter)
            self._waiting_bytes += len(letter.message)
            is_too_much = self._waiting_bytes > MAX_WAITING_BYTES
        if is_too_much or (is_first and time.monotonic() - self._sent_at > GATHER_SECONDS):
            self._send_waiting()
        elif is_first:
            self._thread.wake()

    def put_last(self, letter: Letter) -> bool:
        """Send behind all that was put, and tell whether anybody has listened. Raises redis.RedisError."""
        with self._lock:
            self._waiting.append(letter)
        self._send_waiting()
        with self._sending:
            self._read_answers()
        return letter.sender.is_heard or self.publish(letter)  # a front drops what comes twice

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
            self._read_answers()
            self._send(letters)
            self._sent_at = time.monotonic()
        return True

    def _send(self, letters: list[Letter]) -> None:
        self._unanswered.extend(letters)
        try:
            self._write(letters)
        except redis.RedisError:
            self._send_again()

    def _read_answers(self) -> None:
        try:
            self._read()
        except redis.RedisError:
            self._send_again()

    def _send_again(self) -> None:
        """Send what was not answered over a new connection; a front drops what it has heard already."""
        self._let_go()
        try:
            self._write(self._unanswered)
            self._read()
        except redis.RedisError as error:
            log.warning("replies.not_sent", replies=len(self._unanswered), error=str(error))
            for letter in self._unanswered:
                letter.sender.is_heard = False
            self._unanswered.clear()
            self._let_go()

    def _write(self, letters: Iterable[Letter]) -> None:
        if self._connection is None:
            self._connection = self._pool.get_connection()
        commands = [("PUBLISH", letter.channel, letter.message) for letter in letters]
        if commands:
            self._connection.send_packed_command(self._connection.pack_commands(commands))

    def _read(self) -> None:
        """Read how many have heard each letter that was sent."""
        while self._unanswered:
            if self._connection.read_response() == 0:
                self._unanswered[0].sender.is_heard = False
            self._unanswered.popleft()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
            self._pool.release(connection)
