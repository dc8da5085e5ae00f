"""Parse server-sent events from bytes, without I/O (WHATWG HTML, 9.2).

Lines may end in LF, CRLF or CR, and reads may split lines anywhere. Comments, ids and retry times are ignored. An event
has a maximum size. The parser keeps only the data of the unfinished event.
"""

from typing import NamedTuple

MAX_EVENT_BYTES = 16 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event: the name (empty if the event has none), and the data with its lines joined by LF."""

    name: str
    data: bytes


class EventTooLarge(Exception):
    """An event exceeds the maximum size."""


class SseParser:
    """Turns bytes, as they arrive, into events."""

    __slots__ = (
        "_data",
        "_data_bytes",
        "_is_after_cr",
        "_is_at_start",
        "_max_event_bytes",
        "_name",
        "_piece_bytes",
        "_pieces",
    )

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._name = ""
        self._piece_bytes = 0
        self._data_bytes = 0
        self._is_after_cr = False
        self._is_at_start = True

    def feed(self, received: bytes) -> list[SseEvent]:
        """Return the events that these bytes complete. Raises EventTooLarge."""
        # Drop the LF of a CRLF that was split between two reads.
        if self._is_after_cr and received:
            self._is_after_cr = False
            received = received.removeprefix(b"\n")
        if b"\r" in received:
            self._is_after_cr = received.endswith(b"\r")
            received = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        # Join the pieces of an unfinished line only at the line's end, so that a large event in small pieces takes
        # linear time.
        head, newline, rest = received.rpartition(b"\n")
        if not newline:
            self._hold(rest)
            return []
        if self._pieces:
            head = b"".join([*self._pieces, head])
            self._pieces.clear()
            self._piece_bytes = 0
        events = self._events_of(head)
        self._hold(rest)
        return events

    def finish(self) -> list[SseEvent]:
        """Return the last event although its blank line is missing. The event's data may be truncated."""
        return self.feed(b"\n\n")

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._piece_bytes += len(piece)
            self._check_size()

    def _check_size(self) -> None:
        if self._data_bytes + self._piece_bytes > self._max_event_bytes:
            raise EventTooLarge

    def _events_of(self, lines: bytes) -> list[SseEvent]:
        if self._is_at_start:
            self._is_at_start = False
            lines = lines.removeprefix(_BYTE_ORDER_MARK)
        events: list[SseEvent] = []
        for line in lines.split(b"\n"):
            if not line:
                if self._data:
                    data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    events.append(SseEvent(self._name, data))
                    self._data = []
                    self._data_bytes = 0
                self._name = ""
            elif line.startswith(b"data:"):
                self._data_bytes += len(line)
                self._check_size()
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line.startswith(b"event:"):
                self._name = line[6:].removeprefix(b" ").decode("utf-8", "replace")
            elif line == b"data":
                self._data_bytes += len(line)
                self._data.append(b"")
            elif line == b"event":
                self._name = ""
        return events
