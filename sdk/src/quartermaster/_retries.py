"""Decide whether a request is retried, and after which delay.

A repeatable request is retried after every transient failure. Any other request is retried only if the request
certainly had no effect: no connection was made, or the service rejected the request with 429 or 503.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from quartermaster.errors import ApiError

SHORTEST_SECONDS, LONGEST_SECONDS = 0.5, 8.0
MAX_RETRY_AFTER_SECONDS = 60.0
JITTER = 0.25
OPERATION_IN_PROGRESS = "operation_in_progress"
UPLOAD_TIMEOUT = "upload_timeout"
# The service returns these statuses before the request has an effect, so a retry is safe.
_REJECTED_TEMPORARILY = frozenset({429, 503})
_OUTCOME_UNKNOWN = frozenset({500, 502, 504})
_TRANSIENT = _REJECTED_TEMPORARILY | _OUTCOME_UNKNOWN | {408}
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

MakeRequest = Callable[[], httpx.Request]
"""A function that builds the request for each attempt, because httpx cannot send the same request twice."""


@dataclass(frozen=True)
class RequestFailure:
    """A request without a response. `was_sent` is False only if no byte of the request can have reached the service."""

    reason: str
    was_sent: bool


def describe_failure(request: httpx.Request, error: httpx.RequestError) -> RequestFailure:
    """Return a description of a failed request. It omits the request's content, which may be confidential."""
    reason = f"{request.method} {request.url.path}: {type(error).__name__}"
    return RequestFailure(reason, was_sent=not isinstance(error, _NOT_SENT))


def retry_delay_seconds(
    failure: ApiError | RequestFailure, *, retries_so_far: int, max_retries: int, is_repeatable: bool
) -> float | None:
    """Return the seconds until the next attempt, or None if the request must not be retried."""
    if retries_so_far >= max_retries or not _is_retryable(failure, is_repeatable=is_repeatable):
        return None
    retry_after = failure.retry_after if isinstance(failure, ApiError) else None
    if retry_after is not None and retry_after > MAX_RETRY_AFTER_SECONDS:
        return None  # Do not block the caller for so long: the caller can read `retry_after` of the error.
    backoff: float = min(SHORTEST_SECONDS * 2**retries_so_far, LONGEST_SECONDS)
    return max(retry_after or 0.0, backoff * (1 - JITTER * random.random()))  # noqa: S311 (spreads load; needs no secure randomness)


def may_have_succeeded(failure: ApiError | RequestFailure) -> bool:
    """Return whether the request may have taken effect although its response was lost."""
    if isinstance(failure, RequestFailure):
        return failure.was_sent
    return failure.status in _OUTCOME_UNKNOWN


def _is_retryable(failure: ApiError | RequestFailure, *, is_repeatable: bool) -> bool:
    if isinstance(failure, RequestFailure):
        return is_repeatable or not failure.was_sent
    if failure.is_final or failure.code == UPLOAD_TIMEOUT:
        return False  # Do not retry: at the same speed, the same upload would time out again.
    # Retry: an earlier attempt still runs, and a later attempt with the same operation id returns its result.
    if failure.code == OPERATION_IN_PROGRESS:
        return is_repeatable
    return failure.status in (_TRANSIENT if is_repeatable else _REJECTED_TEMPORARILY)
