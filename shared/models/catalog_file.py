"""The catalog in force: read when a process starts, and again when the operators' file has changed.

A change is in force in every process within two seconds, without a restart. An invalid change is logged, and the
previous catalog stays in force. In processes that serve calls, a thread polls the file (`watch`). In other processes,
`current` checks the file. Without a file, the catalog has only the scripted models.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from shared.models.catalog import Catalog, ProviderEntry
from shared.models.catalog_format import CatalogInvalid, parse_catalog, read_catalog
from shared.observability.telemetry import get_logger
from shared.runtime.periodic_thread import PeriodicThread

log = get_logger(__name__)

CHECK_INTERVAL_SECONDS = 1.0
SETTLED_SECONDS = 0.5
"""A file counts as complete if its last change is at least this old: no editor is still writing the file."""
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
_Pairs = tuple[tuple[str, str], ...]
_SecretRoute = tuple[str, str | None, str | None, str | None, _Pairs, _Pairs]


class CatalogFile:
    """Provides the catalog in force; fast enough to call for every request, and safe to share between threads."""

    def __init__(self, path: Path | None, *, check_interval_seconds: float = CHECK_INTERVAL_SECONDS) -> None:
        """Read the file, or use the scripted models if `path` is None. Raises CatalogInvalid."""
        self._path = path
        self._check_interval_seconds = check_interval_seconds
        self._checking = threading.Lock()
        self._loaded = self._last_seen = self._signature()
        self._catalog = read_catalog(path) if path else parse_catalog(SCRIPTED_CATALOG, source="built in")
        self._trusted = self._catalog.providers
        self._next_check_at = time.monotonic() + check_interval_seconds
        self._watcher = PeriodicThread(
            self.check, name="catalog-watcher", pause_seconds=check_interval_seconds
        )

    def current(self) -> Catalog:
        """Return the catalog in force, after a check of the file if one is due.

        One thread reads a changed file. The others continue with the previous catalog.
        """
        if time.monotonic() >= self._next_check_at:
            self.check()
        return self._catalog

    def check(self) -> None:
        """Read the file if it has changed, unless another thread is reading it."""
        # Do not block: a request must not wait for another thread's file access.
        if self._path is None or not self._checking.acquire(blocking=False):
            return
        try:
            self._reload_if_changed(self._path)
        finally:
            self._next_check_at = time.monotonic() + self._check_interval_seconds
            self._checking.release()

    def watch(self) -> CatalogFile:
        """Start a thread that polls the file. Return self."""
        if self._path is not None:
            self._watcher.start()
        return self

    def close(self) -> None:
        """Stop the thread that polls the file."""
        self._watcher.stop()

    def trusts(self, provider: ProviderEntry) -> bool:
        """Return whether a provider's secrets may be sent along its route.

        True if the provider needs no secret, or if this process has read a catalog with the same secrets on this route.
        """
        if provider.api_key_env is None and not provider.header_envs:
            return True
        route = _secret_route(provider)
        if not self._has_trusted(route):
            # Read the file if it has changed: the web process may have read a newer catalog than this process.
            self.check()
        return self._has_trusted(route)

    def _has_trusted(self, route: _SecretRoute) -> bool:
        return any(_secret_route(provider) == route for provider in self._trusted)

    def _reload_if_changed(self, path: Path) -> None:
        signature = self._signature()
        # Wait until the file is complete: it may be half written, and the first half of a file can be valid TOML.
        is_settled = signature == self._last_seen or self._is_old(path)
        self._last_seen = signature
        if signature == self._loaded or not is_settled:
            return
        self._loaded = signature
        try:
            catalog = read_catalog(path)
        except CatalogInvalid as error:
            log.warning("catalog.invalid", problems=error.problems)
            return
        # If the file changed while it was read, discard the catalog and read again at the next check.
        if self._signature() != signature:
            self._loaded = None
            return
        # Keep trusting the providers of earlier catalogs, because queued calls may still name them.
        self._trusted = self._trusted | catalog.providers
        self._catalog = catalog
        log.info("catalog.loaded", path=str(path), models=len(catalog))

    def _is_old(self, path: Path) -> bool:
        try:
            return time.time() - path.stat().st_ctime > SETTLED_SECONDS
        except OSError:
            return False

    def _signature(self) -> _Signature | None:
        try:
            status = self._path.stat() if self._path else None
        except OSError:
            return None
        # Include the inode: an editor may replace a file by one of the same size within one tick of the clock.
        return (status.st_mtime_ns, status.st_size, status.st_ino) if status else None


def _secret_route(provider: ProviderEntry) -> _SecretRoute:
    """Return the fields of a provider that decide where its secrets are sent, and the names of these secrets."""
    return (
        provider.base_url,
        provider.proxy,
        provider.ca_file,
        provider.api_key_env,
        provider.header_envs,
        provider.headers,
    )
