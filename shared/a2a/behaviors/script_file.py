"""The script of a file, read again whenever the file has changed.

Protects one rule: who edits a script sees what it now does, or what is wrong with it, with the next message; nothing
needs a restart. A script that does not parse takes the place of the one before, because going on with the old one
would leave its author wondering.
"""

import threading
from functools import lru_cache
from pathlib import Path

from shared.a2a.behaviors.script_format import Script, ScriptInvalid, parse_script, read_script

KEPT_SCRIPTS = 256


class ScriptFile:
    """Gives the current script of a file; safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._signature: tuple[int, int, int] | None = None
        self._script: Script | tuple[str, ...] | None = None

    def current(self) -> Script:
        """Give the script as the file says it now. Raises ScriptInvalid, which names file, line and key."""
        with self._lock:
            signature = self._look()
            if self._script is None or signature != self._signature:
                self._signature, self._script = signature, self._read()
            script = self._script
        if isinstance(script, Script):
            return script
        raise ScriptInvalid(script)

    def _read(self) -> Script | tuple[str, ...]:
        try:
            return read_script(self._path)
        except ScriptInvalid as invalid:
            return invalid.problems

    def _look(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(KEPT_SCRIPTS)
def script_of(text: str) -> Script:
    """Give the script of a text, parsed once. Raises ScriptInvalid."""
    return parse_script(text)
