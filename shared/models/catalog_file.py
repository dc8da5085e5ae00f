"""The catalog in force: read at the start, and again whenever the operators' file has changed.

A change is in force in every process within two seconds, without a restart. A broken change leaves the catalog before
in force and is logged. A process that serves calls watches the file with a thread; in others a reader looks first.
Without a file there are the scripted models only.
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
"""A file that was changed longer ago is not being written any more."""
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
    """Gives the current catalog; cheap enough for every request, safe to share between threads."""

    def __init__(self, path: Path | None, *, check_interval_seconds: float = CHECK_INTERVAL_SECONDS) -> None:
        """Read the file, or take the scripted models if there is none. Raises CatalogInvalid."""
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
        """Give the catalog in force, after a look at the file if the last was a while ago.

        One thread reads a changed file; the others go on with the catalog before.
        """
        if time.monotonic() >= self._next_check_at:
            self.check()
        return self._catalog

    def check(self) -> None:
        """Read the file if it has changed, unless another thread is doing so."""
        if self._path is None or not self._checking.acquire(blocking=False):
            return
        try:
            self._reload_if_changed(self._path)
        finally:
            self._next_check_at = time.monotonic() + self._check_interval_seconds
            self._checking.release()

    def watch(self) -> CatalogFile:
        """Look at the file from now on, whether anybody asks for the catalog or not."""
        if self._path is not None:
            self._watcher.start()
        return self

    def close(self) -> None:
        """Watch no more."""
        self._watcher.stop()

    def trusts(self, provider: ProviderEntry) -> bool:
        """Whether a provider needs no secret, or one that a catalog of this process has sent there in the same way."""
        if provider.api_key_env is None and not provider.header_envs:
            return True
        route = _secret_route(provider)
        if not self._has_trusted(route):
            self.check()
        return self._has_trusted(route)

    def _has_trusted(self, route: _SecretRoute) -> bool:
        return any(_secret_route(provider) == route for provider in self._trusted)

    def _reload_if_changed(self, path: Path) -> None:
        signature = self._signature()
        # A file that has just changed may still be being written: half of it can be valid TOML.
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
        if self._signature() != signature:  # it changed while it was read
            self._loaded = None
            return
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
        return (status.st_mtime_ns, status.st_size, status.st_ino) if status else None


def _secret_route(provider: ProviderEntry) -> _SecretRoute:
    """Say where a provider's calls go, by what way, in whose trust, and with which secrets beside which headers."""
    return (
        provider.base_url,
        provider.proxy,
        provider.ca_file,
        provider.api_key_env,
        provider.header_envs,
        provider.headers,
    )
