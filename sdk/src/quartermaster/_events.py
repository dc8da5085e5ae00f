"""Read server-sent events line by line: only what the service sends, which is JSON in `data`."""

from __future__ import annotations

import json
from typing import Any

DONE = "[DONE]"


class EventReader:
    """Collects the lines of an event until it is whole."""

    def __init__(self) -> None:
        self._data: list[str] = []

    def feed(self, line: str) -> Any:
        """Take a line without its end; give the data of an event that it completes, else None."""
        if line:
            if line.startswith("data:"):
                self._data.append(line[5:].removeprefix(" "))
            return None
        text, self._data = "\n".join(self._data), []
        return json.loads(text) if text and text != DONE else None
