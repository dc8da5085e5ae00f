"""Parse server-sent events from bytes, without I/O. Only the field `data` is read, which contains JSON.

Lines end with LF, CRLF or CR only (WHATWG HTML, 9.2.5). The parser does not use `str.splitlines`, which also splits at
other characters that JSON may contain.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from quartermaster.errors import ConnectionFailed

# OpenAI's streams end with this marker. It is not JSON, so it is not parsed.
DONE = b"[DONE]"


class EventReader:
    """Buffers received bytes until an event is complete."""

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self._data: list[bytes] = []
        self._is_after_cr = False

    def feed(self, received: bytes) -> Iterator[Any]:
        """Yield the data of each event that `received` completes. `received` may end anywhere, even within a character.

        Raises ConnectionFailed if an event's data is not JSON.
        """
        for line in self._lines(received):
            if line.startswith(b"data:"):
                # Remove only one space after the colon: further spaces are part of the value.
                self._data.append(line[5:].removeprefix(b" "))
            elif not line:
                data, self._data = b"\n".join(self._data), []
                if data and data != DONE:
                    yield _read_json(data)

    def _lines(self, received: bytes) -> list[bytes]:
        """Return the lines that end in `received`. A CRLF may be split between two calls."""
        if not received:
            return []
        if self._is_after_cr:
            received = received.removeprefix(b"\n")
        self._is_after_cr = received.endswith(b"\r")
        first, *rest = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        # Collect the pieces in a list and join them once: repeated concatenation takes quadratic time for a long line.
        self._unfinished.append(first)
        if not rest:
            return []
        whole, self._unfinished = b"".join(self._unfinished), [rest.pop()]
        return [whole, *rest]


def _read_json(data: bytes) -> Any:
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError):
        pass  # Raise after the block: otherwise the new error's context would contain the data, which may be secret.
    raise ConnectionFailed("The service sent an event that is not JSON.")
