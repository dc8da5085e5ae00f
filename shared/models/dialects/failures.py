"""Failures inside a stream: the parser of an upstream's error events, and the error events of each client dialect.

A stream that broke ends with an error that every client notices, never with an invented success. An upstream's message
is shortened and redacted (`disclosure.py`).
"""

from dataclasses import dataclass
from typing import Any

from shared.models.dialects.requests import Json
from shared.models.disclosure import disclose

PROVIDER_ERROR = "provider_error"
MAXIMUM_MESSAGE_CHARACTERS = 500
_PASSED_ON = frozenset(
    {"context_length_exceeded", "content_filter", "rate_limit_exceeded", "provider_timeout"}
)
_MESSAGES_TYPES = {
    "context_length_exceeded": "invalid_request_error",
    "content_filter": "invalid_request_error",
    "rate_limit_exceeded": "rate_limit_error",
    "provider_timeout": "timeout_error",
    "overloaded": "overloaded_error",
}
_FAILED_FINISHES = ("error", "abort", "cancelled", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The reason why a stream ended early: a stable code of this service, and a message."""

    code: str
    message: str


def read_failure(event: Json) -> Failure | None:
    """Return the failure that an upstream's event reports, or None if the event reports none."""
    kind = event.get("type")
    if kind == "response.failed":
        return _failure(event["response"].get("error") if isinstance(event.get("response"), dict) else None)
    if kind == "error":
        return _failure(event.get("error") or event)
    if event.get("error"):
        return _failure(event["error"])
    if event.get("object") == "error":
        return _failure(event)
    if event.get("object") == "response" and event.get("status") in ("failed", "cancelled"):
        return _failure(None)
    if event.get("object") == "response" and event.get("status") in ("queued", "in_progress"):
        # This is the upstream's whole response. If it is still in progress, the reply was truncated.
        return truncated()
    choices = event.get("choices")
    if isinstance(choices, list) and any(map(_has_failed, choices)):
        return _failure(None)
    return None


def truncated() -> Failure:
    """Return the failure of a stream that ended before the reply was complete."""
    return Failure(
        code=PROVIDER_ERROR, message="The model's provider ended the stream before the reply was complete."
    )


def chat_error(failure: Failure) -> Json:
    """Return the error object that OpenAI's clients raise."""
    return {
        "error": {"message": failure.message, "type": _type_of(failure), "param": None, "code": failure.code},
    }


def responses_error(failure: Failure, sequence_number: int) -> Json:
    """Return an `error` event of the Responses dialect.

    The event has the error twice: flat for OpenAI's schema, and nested for Open Responses and for official clients.
    """
    error = {"type": _type_of(failure), "code": failure.code, "message": failure.message, "param": None}
    return {
        "type": "error",
        "sequence_number": sequence_number,
        "code": failure.code,
        "message": failure.message,
        "param": None,
        "error": error,
    }


def messages_error(failure: Failure) -> Json:
    """Return the `error` event of Anthropic's dialect, with this service's error code as an additional field."""
    type_ = _MESSAGES_TYPES.get(failure.code, "api_error")
    return {"type": "error", "error": {"type": type_, "message": failure.message, "code": failure.code}}


def response_error(failure: Failure) -> Json:
    """Return the `error` field of a Response object."""
    # Replace a code that the schema of Response objects does not allow.
    closed = "rate_limit_exceeded" if failure.code == "rate_limit_exceeded" else "server_error"
    return {"code": closed, "message": failure.message}


def _has_failed(choice: Any) -> bool:
    return isinstance(choice, dict) and choice.get("finish_reason") in _FAILED_FINISHES


def _failure(error: Any) -> Failure:
    given = error if isinstance(error, dict) else {"message": error}
    code = given.get("code") if str(given.get("code")) in _PASSED_ON else PROVIDER_ERROR
    # Also accept 429 as a code: some gateways repeat their HTTP status there.
    if given.get("code") in (429, "429") or given.get("type") == "rate_limit_error":
        code = "rate_limit_exceeded"
    message = given.get("message")
    text = message if isinstance(message, str) and message else "The model's provider reported an error."
    return Failure(code=str(code), message=disclose(text)[:MAXIMUM_MESSAGE_CHARACTERS])


def _type_of(failure: Failure) -> str:
    if failure.code == "context_length_exceeded":
        return "invalid_request_error"
    return "rate_limit_error" if failure.code == "rate_limit_exceeded" else "server_error"
