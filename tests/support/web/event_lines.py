"""The lines of an event stream, for tests that read one with httpx."""

from collections.abc import Iterator

import httpx


def event_lines(answer: httpx.Response) -> Iterator[str]:
    """Yield each line without its LF. httpx also splits lines at characters that JSON may contain (U+2028)."""
    rest = b""
    for piece in answer.iter_bytes():
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode() for line in whole)
