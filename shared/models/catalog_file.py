"""The catalog in force: read at the start, and again whenever the operators' file has changed.

Protects two rules: a change needs no restart, and a broken change takes nothing away: the catalog of before stays in
force and the log says what is wrong. Without a file there are the scripted models only.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from shared.models.catalog import Catalog
from shared.models.catalog_format import CatalogInvalid, parse_catalog, read_catalog
from shared.telemetry import get_logger

log = get_logger(__name__)

LOOK_EVERY_SECONDS = 1.0
SCRIPTED_CATALOG = '''
[providers.scripted]
kind = "scripted"

[[models]]
id = "scripted/echo"
name = "Scripted echo"
description = """Not a language model: a script that repeats the prompt, for tests and first steps. \\
  Set MODELS_CONFIG to offer real models."""
prompt_price = "1"
completion_price = "2"
context_length = 100_000
max_completion_tokens = 100_000
upstreams = [{ provider = "scripted", model = "echo" }]

[[models]]
id = "scripted/echo-responses"
name = "Scripted echo, by way of Responses"
description = "Not a language model: the same script, answering as an upstream that speaks the Responses dialect."
prompt_price = "1"
completion_price = "2"
context_length = 100_000
max_completion_tokens = 100_000
upstreams = [{ provider = "scripted", model = "echo", dialect = "responses" }]
'''

_Signature = tuple[int, int, int]


class CatalogFile:
    """Gives the current catalog; cheap enough for every request, safe to share between threads."""

    def __init__(self, path: Path | None, *, look_every_seconds: float = LOOK_EVERY_SECONDS) -> None:
        """Read the file, or take the scripted models if there is none. Raises CatalogInvalid."""
        self._path = path
        self._look_every_seconds = look_every_seconds
        self._looking = threading.Lock()
        self._loaded = self._seen = self._signature()
        self._catalog = read_catalog(path) if path else parse_catalog(SCRIPTED_CATALOG, source="built in")
        self._look_at = time.monotonic() + look_every_seconds

    def current(self) -> Catalog:
        """Give the catalog in force, after a look at the file at most once a second.

        The thread whose turn it is to look reads a changed file; the others go on with the catalog of before.
        """
        if (
            self._path is not None
            and time.monotonic() >= self._look_at
            and self._looking.acquire(blocking=False)
        ):
            try:
                self._look(self._path)
            finally:
                self._look_at = time.monotonic() + self._look_every_seconds
                self._looking.release()
        return self._catalog

    def _look(self, path: Path) -> None:
        signature = self._signature()
        # A file that differs from what the last look saw may still be being written: half of it can be valid TOML.
        is_still, self._seen = signature == self._seen, signature
        if signature == self._loaded or not is_still:
            return
        self._loaded = signature
        try:
            catalog = read_catalog(path)
        except CatalogInvalid as error:
            log.warning("catalog.invalid", problems=error.problems)
            return
        if self._signature() != signature:  # it changed while it was read
            self._loaded = None
            return
        self._catalog = catalog
        log.info("catalog.loaded", path=str(path), models=len(catalog))

    def _signature(self) -> _Signature | None:
        try:
            status = self._path.stat() if self._path else None
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino) if status else None
