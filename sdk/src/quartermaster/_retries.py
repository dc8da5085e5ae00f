"""When a request is sent again, and after which pause.

A request that may be repeated is sent again after every failure that may pass. Any other one only when it certainly
had no effect: nothing was connected, or the service refused it for now.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from quartermaster.errors import ApiError

SHORTEST_SECONDS, LONGEST_SECONDS = 0.5, 8.0
LONGEST_ASKED_SECONDS = 60.0
JITTER = 0.25
OPERATION_IN_PROGRESS = "operation_in_progress"
UPLOAD_TIMEOUT = "upload_timeout"
_REFUSED_FOR_NOW = frozenset({429, 503})
_UNKNOWN = frozenset({500, 502, 504})
_MAY_PASS = _REFUSED_FOR_NOW | _UNKNOWN | {408}
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

MakeRequest = Callable[[], httpx.Request]
"""Makes the request anew for each attempt."""


@dataclass(frozen=True)
class Unanswered:
    """A request without an answer; `was_sent` unless no byte of it can have arrived."""

    reason: str
    was_sent: bool


def unanswered(request: httpx.Request, error: httpx.RequestError) -> Unanswered:
    """Say what came of a request that broke off, without what it holds."""
    reason = f"{request.method} {request.url.path}: {type(error).__name__}"
    return Unanswered(reason, was_sent=not isinstance(error, _UNSENT))


def pause_before_retry(
    failure: ApiError | Unanswered, *, retries_so_far: int, max_retries: int, is_repeatable: bool
) -> float | None:
    """Give the seconds to wait before the next attempt, None when there should be none."""
    if retries_so_far >= max_retries or not _may_help(failure, is_repeatable=is_repeatable):
        return None
    asked = failure.retry_after if isinstance(failure, ApiError) else None
    if asked is not None and asked > LONGEST_ASKED_SECONDS:
        return None  # The caller reads `retry_after` and has better things to do meanwhile.
    backoff: float = min(SHORTEST_SECONDS * 2**retries_so_far, LONGEST_SECONDS)
    return max(asked or 0.0, backoff * (1 - JITTER * random.random()))  # noqa: S311 (spreads load, guards nothing)


def may_have_worked(failure: ApiError | Unanswered) -> bool:
    """Tell whether the request may have had its effect: its answer was lost, here or within the service."""
    if isinstance(failure, Unanswered):
        return failure.was_sent
    return failure.status in _UNKNOWN


def _may_help(failure: ApiError | Unanswered, *, is_repeatable: bool) -> bool:
    if isinstance(failure, Unanswered):
        return is_repeatable or not failure.was_sent
    if failure.is_final or failure.code == UPLOAD_TIMEOUT:
        return False  # At the same pace the same upload is cut off again.
    if failure.code == OPERATION_IN_PROGRESS:
        return is_repeatable
    return failure.status in (_MAY_PASS if is_repeatable else _REFUSED_FOR_NOW)
