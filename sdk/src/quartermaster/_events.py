"""Read server-sent events from bytes, without I/O: only what the service sends, which is JSON in `data`.

Lines end in LF, CRLF or CR and in nothing else (WHATWG HTML, 9.2.5): JSON may hold other characters that Python takes
for the end of a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from quartermaster.errors import ConnectionFailed

DONE = b"[DONE]"


class EventReader:
    """Collects the bytes of an event until it is whole."""

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self._data: list[bytes] = []
        self._is_after_cr = False

    def feed(self, received: bytes) -> Iterator[Any]:
        """Take the next bytes, cut anywhere; give the data of each event that they complete.

        Raises ConnectionFailed for an event that is not JSON.
        """
        for line in self._lines(received):
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line:
                data, self._data = b"\n".join(self._data), []
                if data and data != DONE:
                    yield _read_json(data)

    def _lines(self, received: bytes) -> list[bytes]:
        """Give the lines that end in these bytes; the end of a line may itself be cut."""
        if not received:
            return []
        if self._is_after_cr:
            received = received.removeprefix(b"\n")
        self._is_after_cr = received.endswith(b"\r")
        first, *rest = received.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._unfinished.append(first)
        if not rest:
            return []
        whole, self._unfinished = b"".join(self._unfinished), [rest.pop()]
        return [whole, *rest]


def _read_json(data: bytes) -> Any:
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError):
        pass  # What is raised here would hold the data.
    raise ConnectionFailed("The stream has an event that is not JSON.")
