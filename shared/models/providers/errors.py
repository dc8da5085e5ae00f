"""Errors of providers, whether they may have cost something, and the meaning of an upstream's error response.

    ProviderError               502   broke off, invalid response, rejected our credentials …
    ├── ProviderTimeout         504   too slow: to begin, within the response, or in all
    ├── ProviderOverloaded      503   no capacity at the moment; comes with a time to wait
    ├── UpstreamRefused         400   the request itself is invalid; the upstream's error is passed on
    └── CallCancelled                 we hung up, because the client has left

Rules that these errors protect:
- A call that may have cost something is never repeated. `may_have_cost` is False only if the call certainly was free.
- No upstream's text reaches a log: `str()` of these errors is a sentence of this service.
- Callers see nothing about the operators' account at the provider (keys, quota, addresses).
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar

from shared.errors import DomainError, Kind
from shared.models.disclosure import disclose


class ProviderError(DomainError):
    """The provider of this model failed to answer."""

    code: ClassVar[str] = "provider_error"
    kind: ClassVar[Kind] = Kind.UPSTREAM_FAILED

    def __init__(
        self,
        detail: str | None = None,
        *,
        may_have_cost: bool,
        is_worth_repeating: bool = False,
        retry_after_seconds: int | None = None,
        upstream_status: int | None = None,
    ) -> None:
        """Create the error. `may_have_cost`: the provider may have begun to work. `is_worth_repeating`: so is the call.

        The router sets `provider` later, because only the router knows the name.
        """
        super().__init__(detail, retry_after_seconds=retry_after_seconds)
        self.may_have_cost = may_have_cost
        self.provider: str | None = None
        self.is_worth_repeating = is_worth_repeating and not may_have_cost
        self.upstream_status = upstream_status


class ProviderTimeout(ProviderError):
    """The provider of this model took too long to answer."""

    code = "provider_timeout"
    kind = Kind.UPSTREAM_TIMED_OUT


class ProviderOverloaded(ProviderError):
    """The provider of this model has no capacity at the moment. Retry after the time in `Retry-After`."""

    code = "overloaded"
    kind = Kind.UNAVAILABLE

    def __init__(
        self,
        detail: str | None = None,
        *,
        retry_after_seconds: int | None = None,
        upstream_status: int | None = None,
    ) -> None:
        """Create an error that asks for a retry after `retry_after_seconds`, by default 1. The call was free."""
        super().__init__(
            detail,
            may_have_cost=False,
            is_worth_repeating=True,
            retry_after_seconds=1 if retry_after_seconds is None else retry_after_seconds,
            upstream_status=upstream_status,
        )


class UpstreamRefused(ProviderError):
    """The provider of this model rejected the request as invalid.

    `status` is 400, 413 or 422. `error` has the upstream's `message`, `type`, `param` and `code`, shortened; only the
    caller may read it.
    """

    code = "upstream_refused"
    kind = Kind.MALFORMED

    def __init__(self, *, status: int, error: dict[str, Any]) -> None:
        super().__init__(may_have_cost=False, upstream_status=status)
        self.status = status
        self.error = error


class CallCancelled(ProviderError):
    """The call was cancelled."""

    code = "cancelled"


MAX_RETRY_AFTER_SECONDS = 3600
MAX_TEXT_CHARACTERS = 2000
_OVERLOADED = frozenset({429, 503, 529})
_REQUEST_IS_WRONG = frozenset({400, 413, 422})
_REQUEST_IS_WRONG_TOO = frozenset({409, 411, 415, 451})
_REQUEST_NEVER_ARRIVED = frozenset({408, 425})
_OUR_CONFIGURATION = frozenset({401, 402, 403, 404, 405, 407, 410, 421, 426, 431})
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_REDIRECTS = range(300, 400)
_GATEWAY_TIMEOUTS = frozenset({504, 522, 524})


def refusal(status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """Return the error for a response with this unsuccessful status. `body` may be truncated."""
    error = _error_object(body)
    # Exclude an exhausted quota, which providers also report as 429, because a retry would not help.
    if status in _OVERLOADED and error.get("code") not in _QUOTA_CODES:
        return ProviderOverloaded(retry_after_seconds=retry_after_seconds(headers), upstream_status=status)
    if status in _REQUEST_IS_WRONG:
        return UpstreamRefused(status=status, error=_shown(error))
    if status in _REQUEST_IS_WRONG_TOO:
        return UpstreamRefused(status=400, error=_shown(error))
    if status in _REQUEST_NEVER_ARRIVED:
        return ProviderError(may_have_cost=False, is_worth_repeating=True, upstream_status=status)
    if status in _OUR_CONFIGURATION or status in _OVERLOADED or status in _REDIRECTS:
        return ProviderError(may_have_cost=False, upstream_status=status)
    if status in _GATEWAY_TIMEOUTS:
        return ProviderTimeout(may_have_cost=True, upstream_status=status)
    return ProviderError(may_have_cost=True, upstream_status=status)


def retry_after_seconds(headers: Mapping[str, str]) -> int | None:
    """Return the seconds to wait according to the headers, rounded up and at most 3600; None if they name no time."""
    seconds = _number(headers.get("retry-after-ms"), divisor=1000)
    if seconds is None:
        seconds = _number(headers.get("retry-after"))
    if seconds is None:
        seconds = _seconds_until(headers.get("retry-after"))
    return None if seconds is None else min(max(0, -int(-seconds // 1)), MAX_RETRY_AFTER_SECONDS)


def _number(value: str | None, *, divisor: int = 1) -> float | None:
    text = (value or "").strip()
    if not text.isascii() or not text.replace(".", "", 1).isdigit():
        return None
    return float(text[:20]) / divisor


def _seconds_until(value: str | None) -> float | None:
    try:
        moment = parsedate_to_datetime(value or "")
    except ValueError:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()


def _error_object(body: bytes) -> dict[str, Any]:
    """Return the error object of a response.

    Upstreams send an object or a text in `error`, a text in `detail`, or the object's fields at the top level.
    """
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    # Unwrap the list in which Gemini's OpenAI-compatible endpoint sends an error.
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]
    if not isinstance(parsed, dict):
        return {}
    match parsed.get("error"):
        case dict() as error:
            return error
        case str() as message:
            return {"message": message}
    detail = parsed.get("detail")
    return {"message": detail} if isinstance(detail, str) else parsed


def _shown(error: Mapping[str, Any]) -> dict[str, Any]:
    message = error.get("message")
    return {
        "message": _text(message) or "The provider of this model refused the request.",
        "type": _text(error.get("type")) or "invalid_request_error",
        "param": _text(error.get("param")),
        "code": _text(error.get("code")),
    }


def _text(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return disclose(str(value))[:MAX_TEXT_CHARACTERS] or None
