"""What an upstream's answer other than success means: pure decisions by status, headers and a bounded body.

Only what surely cost nothing is marked as such, and nothing of the operators' account at the provider (keys, quota,
addresses) is shown to a caller.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from shared.models.disclosure import disclose
from shared.models.providers.errors import ProviderError, ProviderOverloaded, ProviderTimeout, UpstreamRefused

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
    """Make the error that an answer of this status means; `body` may be cut short."""
    error = _error_object(body)
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
    """Read how long the upstream wants to be left alone, in whole seconds up to an hour; None if it does not say."""
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
    """Find the error in the shapes upstreams use: an object or a text in `error`, a text in `detail`, or flat."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(parsed, list) and parsed:  # Gemini's OpenAI-compatible endpoint wraps errors in a list
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
