"""Describe the error responses of a route, in the dialect of its path."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from shared.errors import DomainError, ValidationFailed
from shared.fairness.admission import ConcurrencyLimited
from shared.files.errors import ContentTooLarge, UploadTimeout
from shared.identity import errors as identity_errors
from shared.models.providers.errors import ProviderError
from web.dependencies.rate_limits import RateLimited
from web.error_responses.a2a_errors import a2a_reason, a2a_status, is_a2a_path
from web.error_responses.anthropic_errors import anthropic_status, anthropic_type, is_anthropic_path
from web.error_responses.error_formats import OAUTH_PATHS, PROBLEM, oauth_code
from web.error_responses.openai_errors import is_openai_path, openai_code, openai_type
from web.error_responses.status_codes import STATUSES
from web.framework.authentication import Authentication
from web.framework.routes import PROBES, FilePart, JsonOrForm, Route
from web.http.requests import (
    DuplicateParameter,
    FieldRequired,
    MalformedJson,
    MalformedRequest,
    UnknownParameter,
    UnsupportedMediaType,
)
from web.http.wire_types import CamelModel
from web.openapi.a2a_components import a2a_error_answer
from web.openapi.components import ref

_EVERY_ROUTE: tuple[type[DomainError], ...] = (UnknownParameter, DuplicateParameter, MalformedRequest)
_CREDENTIAL_ERRORS: tuple[type[DomainError], ...] = (
    identity_errors.AuthenticationRequired,
    identity_errors.InvalidToken,
    identity_errors.AttributionEmpty,
    identity_errors.AttributionRepeated,
    identity_errors.PrincipalSelectorNotAllowed,
    RateLimited,
)
_CALLER_ERRORS: tuple[type[DomainError], ...] = (
    *_CREDENTIAL_ERRORS,
    identity_errors.AttributionInvalid,
    identity_errors.AttributionMismatch,
    identity_errors.OrganizationSuspended,
)

_OWN_BODY_ERRORS: tuple[type[DomainError], ...] = (UnsupportedMediaType, FieldRequired, ValidationFailed)
"""The errors of an invalid body in this service's own API. The dialects have other codes for an invalid body."""


def errors_by_status(route: Route) -> Mapping[int, Mapping[str, str]]:
    """Return the codes of a route's errors with their meanings, by status."""
    by_status: dict[int, dict[str, str]] = defaultdict(dict)
    status_of = _status_writer(route.path)
    for error in _errors(route):
        by_status[status_of(STATUSES[error.kind], error.code)].setdefault(
            error.code, (error.__doc__ or "").strip().split("\n\n")[0]
        )
    # A malformed id matches no route, so any path with a parameter may respond with 404.
    if "<" in route.path:
        by_status[404].setdefault("not_found", "No resource exists at this address.")
    # Every route may fail or may need a server that is unavailable, so these two errors are added here.
    by_status[500]["internal_error"] = "The service failed."
    by_status[503].setdefault("unavailable", "A server that this request needs is unavailable. Try again.")
    return by_status


def dialect_code(path: str, status: int, code: str) -> str:
    """Return the code that the dialect of a path uses for this service's code."""
    if path in OAUTH_PATHS:
        return oauth_code(status, code)
    if is_a2a_path(path):
        return a2a_reason(code)
    return openai_code(code) if is_openai_path(path) else code


def describe_errors(route: Route) -> dict[str, Any]:
    """Return the error responses of a route, by status."""
    render = _renderer(route.path)
    described = {
        str(status): render(status, codes)
        for status, codes in sorted(errors_by_status(route).items())
        # Omit a declared status: readiness declares its 503 as a response with its own body.
        if status not in route.responses
    }
    if ProviderError in route.errors:
        schema = "AnthropicError" if is_anthropic_path(route.path) else "OpenAIError"
        # Providers may return any code, so the schema must not list this service's codes only.
        described["400"] = _with_codes_of_providers(described["400"], ref(schema))
    return described


def _with_codes_of_providers(answer: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the response with the note that a provider's error codes are passed on unchanged."""
    described = f"{answer['description']}\n\nOr a code of the model provider."
    return {"description": described, "content": {"application/json": {"schema": schema}}}


def _problem(_: int, codes: Mapping[str, str]) -> dict[str, Any]:
    return {
        "description": _list_codes(codes),
        "content": {PROBLEM: {"schema": ref("Problem") | {"properties": {"code": {"enum": list(codes)}}}}},
    }


def _status_writer(path: str) -> Callable[[int, str], int]:
    if is_anthropic_path(path):
        # Both dialects have different statuses for some errors, such as Anthropic's 529.
        return anthropic_status
    return a2a_status if is_a2a_path(path) else _plain_status


def _plain_status(status: int, _: str) -> int:
    return status


def _a2a_error(_: int, codes: Mapping[str, str]) -> dict[str, Any]:
    return a2a_error_answer(codes, ref("A2AError"))


def _renderer(path: str) -> Callable[[int, Mapping[str, str]], dict[str, Any]]:
    if path in OAUTH_PATHS:
        return _oauth_error
    if is_a2a_path(path):
        return _a2a_error
    if is_anthropic_path(path):
        return _anthropic_error
    return _openai_error if is_openai_path(path) else _problem


def _openai_error(status: int, codes: Mapping[str, str]) -> dict[str, Any]:
    """Return the response of a status in OpenAI's dialect.

    Several codes of this service may have one code there.
    """
    own: dict[str, str] = {}
    for code, meaning in codes.items():
        own.setdefault(openai_code(code), meaning)
    types = sorted({openai_type(status, code) for code in own})
    named = {"type": {"enum": types}, "code": {"enum": list(own)}}
    schema = ref("OpenAIError") | {"properties": {"error": {"properties": named}}}
    return {"description": _list_codes(own), "content": {"application/json": {"schema": schema}}}


def _anthropic_error(status: int, codes: Mapping[str, str]) -> dict[str, Any]:
    """Return the response of a status in Anthropic's dialect. The codes have the names of OpenAI's dialect."""
    own: dict[str, str] = {}
    for code, meaning in codes.items():
        own.setdefault(openai_code(code), meaning)
    named = {"type": {"enum": [anthropic_type(status)]}, "code": {"enum": list(own)}}
    schema = ref("AnthropicError") | {"properties": {"error": {"properties": named}}}
    return {"description": _list_codes(own), "content": {"application/json": {"schema": schema}}}


def _oauth_error(status: int, codes: Mapping[str, str]) -> dict[str, Any]:
    """Return the response of a status in OAuth's dialect.

    Several codes of this service may have one code there.
    """
    own: dict[str, str] = {}
    for code, meaning in codes.items():
        own.setdefault(oauth_code(status, code), meaning)
    schema = ref("OAuthError") | {"properties": {"error": {"enum": list(own)}}}
    return {"description": _list_codes(own), "content": {"application/json": {"schema": schema}}}


def _list_codes(codes: Mapping[str, str]) -> str:
    return "\n".join(f"- `{code}`: {meaning}" for code, meaning in codes.items())


def _errors(route: Route) -> Iterable[type[DomainError]]:
    yield from _EVERY_ROUTE
    # A health check is answered without a slot, so it cannot return these errors.
    if route.path not in PROBES:
        yield ConcurrencyLimited
    if route.authentication.has_caller:
        yield from _CALLER_ERRORS
    elif route.authentication in (
        Authentication.DISTRIBUTION,
        Authentication.DISTRIBUTION_OR_SIGNATURE,
    ):
        yield from _CREDENTIAL_ERRORS
    # OAuth has its own codes for a wrong client, so only the rate limit is added.
    elif route.authentication is Authentication.CLIENT:
        yield RateLimited
    yield from route.errors
    yield from _body_errors(route)


def _body_errors(route: Route) -> Iterable[type[DomainError]]:
    """Yield the errors that follow from the declaration of the body, so that routes need not declare them."""
    body = route.body
    if body is None:
        return
    yield UploadTimeout
    # Only JSON has the common limits: routes of raw content and forms declare their own errors.
    is_json = isinstance(body, type) and issubclass(body, BaseModel)
    if is_json or isinstance(body, FilePart | JsonOrForm):
        yield ContentTooLarge
    if is_json or isinstance(body, JsonOrForm):
        yield MalformedJson
    if isinstance(body, JsonOrForm) or (isinstance(body, type) and issubclass(body, CamelModel)):
        yield from _OWN_BODY_ERRORS
