"""Choose the upstream of a call: fallback order, retries, and the wait between them.

A call is attempted again, at the same or another upstream, only if the attempt before certainly cost nothing and no
part of a reply was sent. The next upstream is called at once. When all upstreams have failed, another round begins
after a wait. The wait grows with each round, has jitter and respects `Retry-After`.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from prometheus_client import Counter, Histogram

from shared.models.catalog import ModelEntry, ProviderEntry, ProviderKind, Upstream
from shared.models.providers.base import Cancellation, Event, Provider, UpstreamRequest, UpstreamStream
from shared.models.providers.errors import (
    CallCancelled,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    UpstreamRefused,
)
from shared.models.providers.openai_compatible import OpenAiCompatibleProvider
from shared.models.providers.scripted import ScriptedProvider
from shared.models.providers.watchdog import Watchdog
from shared.observability.telemetry import PROVIDER_FIRST_BYTE_SECONDS, PROVIDER_REQUESTS, get_logger
from shared.observability.tracing import span
from shared.runtime.retry import backoff_seconds

log = get_logger(__name__)

FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 8.0
REST_SECONDS = 2.0
"""How long the other upstreams are preferred to a failed one, unless the failed one's response named a time."""
MAX_PROVIDERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    entry: ModelEntry
    body_for: Callable[[Upstream], Event]
    cancelled: Cancellation
    deadline_at: float
    call_id: str | None


class Router:
    """Opens calls to the upstreams of catalog entries. One per process; safe to share between threads."""

    def __init__(self, *, watchdog: Watchdog | None = None) -> None:
        self._watchdog = watchdog or Watchdog()
        self._providers: dict[ProviderEntry, Provider] = {}
        self._resting: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def open(
        self,
        entry: ModelEntry,
        body_for: Callable[[Upstream], Event],
        *,
        cancelled: Cancellation,
        deadline_at: float | None = None,
        call_id: str | None = None,
    ) -> UpstreamStream:
        """Open a call at one of the entry's upstreams. The returned stream's `upstream` is the one that responded.

        `body_for` returns the body for an upstream. `deadline_at`, in the monotonic clock's seconds, can shorten the
        entry's deadline. Raises ProviderError, ProviderTimeout, ProviderOverloaded, UpstreamRefused, CallCancelled.
        """
        ends_at = time.monotonic() + entry.deadline_seconds
        plan = _Plan(
            entry=entry,
            body_for=body_for,
            cancelled=cancelled,
            deadline_at=ends_at if deadline_at is None else min(deadline_at, ends_at),
            call_id=call_id,
        )
        return self._first_answer(plan)

    def close(self) -> None:
        """Close idle connections and stop the watchdog."""
        with self._lock:
            providers, self._providers = list(self._providers.values()), {}
        for provider in providers:
            provider.close()
        self._watchdog.close()

    def _first_answer(self, plan: _Plan) -> UpstreamStream:
        asked = self._in_order(plan.entry.upstreams)
        failure: ProviderError | None = None
        for round_number in range(plan.entry.retries + 1):
            if failure is not None:
                _wait(plan, round_number, failure)
                failure = None
            worth_repeating: list[Upstream] = []
            for upstream in asked:
                try:
                    return self._attempt(plan, upstream)
                except ProviderError as error:
                    if _ends_the_call(error):
                        raise
                    self._rest(upstream, error)
                    failure = _more_telling(failure, error)
                    if _may_be_repeated(error):
                        worth_repeating.append(upstream)
            asked = worth_repeating
            if not asked:
                break
        assert failure is not None  # noqa: S101 (an entry has upstreams, and each of them has failed)
        raise failure

    def _attempt(self, plan: _Plan, upstream: Upstream) -> UpstreamStream:
        # Check this before each attempt, because the client may have left during a wait between attempts.
        if plan.cancelled.is_set():
            raise CallCancelled(may_have_cost=False)
        if time.monotonic() >= plan.deadline_at:
            raise ProviderTimeout(may_have_cost=False)
        request = UpstreamRequest(
            upstream=upstream,
            body=plan.body_for(upstream),
            deadline_at=plan.deadline_at,
            first_byte_timeout_seconds=plan.entry.first_byte_timeout_seconds,
            call_id=plan.call_id,
        )
        started = time.monotonic()
        name = upstream.provider.name
        attempt = span(
            "provider attempt", "client", gen_ai__provider__name=name, gen_ai__request__model=plan.entry.id
        )
        try:
            with attempt:
                stream = self._provider(upstream.provider).open(request, cancelled=plan.cancelled)
        except ProviderError as error:
            # Add the provider's name for the usage record: the code that raised the error does not know the name.
            error.provider = name
            PROVIDER_REQUESTS.labels(name, error.code).inc()
            log.info(
                "provider.failed",
                provider=name,
                model=plan.entry.id,
                code=error.code,
                status=error.upstream_status,
                may_have_cost=error.may_have_cost,
            )
            raise
        count, first_byte_seconds = _answered(name)
        count.inc()
        first_byte_seconds.observe(time.monotonic() - started)
        return stream

    def _provider(self, entry: ProviderEntry) -> Provider:
        # Look the provider up without the lock: this runs for every call, and a dict lookup is atomic.
        provider = self._providers.get(entry)
        if provider is not None:
            return provider
        with self._lock:
            if entry not in self._providers:
                # Each reload of the catalog may add providers. Drop the oldest, which is probably no longer in use.
                if len(self._providers) >= MAX_PROVIDERS:
                    self._providers.pop(next(iter(self._providers))).close()
                self._providers[entry] = self._connect(entry)
            return self._providers[entry]

    def _connect(self, entry: ProviderEntry) -> Provider:
        if entry.kind is ProviderKind.SCRIPTED:
            return ScriptedProvider()
        return OpenAiCompatibleProvider(entry, self._watchdog)

    def _in_order(self, upstreams: tuple[Upstream, ...]) -> list[Upstream]:
        """Return the upstreams in the operators' order, but upstreams that failed a moment ago last."""
        if not self._resting:
            return list(upstreams)
        now = time.monotonic()
        return sorted(upstreams, key=lambda upstream: self._resting.get(_key(upstream), 0.0) > now)

    def _rest(self, upstream: Upstream, error: ProviderError) -> None:
        now = time.monotonic()
        with self._lock:
            self._resting = {key: until for key, until in self._resting.items() if until > now}
            self._resting[_key(upstream)] = now + (error.retry_after_seconds or REST_SECONDS)


@cache
def _answered(provider: str) -> tuple[Counter, Histogram]:
    """Return the metrics of a provider's successful responses. The cache has one entry for each provider's name."""
    return PROVIDER_REQUESTS.labels(provider, "answered"), PROVIDER_FIRST_BYTE_SECONDS.labels(provider)


def _key(upstream: Upstream) -> tuple[str, str]:
    return upstream.provider.name, upstream.model


def _ends_the_call(error: ProviderError) -> bool:
    """Return whether an error forbids another attempt.

    True if the failed attempt may have cost something, the request is invalid, or the client has left.
    """
    return error.may_have_cost or isinstance(error, UpstreamRefused | CallCancelled)


def _may_be_repeated(error: ProviderError) -> bool:
    return error.is_worth_repeating and (error.retry_after_seconds or 0) <= LONGEST_WAIT_SECONDS


def _more_telling(before: ProviderError | None, error: ProviderError) -> ProviderError:
    """Return the error to report if all upstreams fail: the overload with the shortest wait, else the latest error."""
    if not isinstance(before, ProviderOverloaded):
        return error
    if not isinstance(error, ProviderOverloaded):
        return before
    return min(before, error, key=lambda overloaded: overloaded.retry_after_seconds or 0)


def _wait(plan: _Plan, round_number: int, failure: ProviderError) -> None:
    """Wait before another round. Raises `failure` at once if the wait would exceed the deadline."""
    backoff = backoff_seconds(round_number, first=FIRST_WAIT_SECONDS, longest=LONGEST_WAIT_SECONDS)
    seconds = max(failure.retry_after_seconds or 0, 0.5 * backoff) + random.uniform(0, 0.5 * backoff)  # noqa: S311
    if time.monotonic() + seconds >= plan.deadline_at:
        raise failure
    if plan.cancelled.wait(seconds):
        raise CallCancelled(may_have_cost=False)
