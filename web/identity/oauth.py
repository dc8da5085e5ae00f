"""The OAuth endpoints: exchange a deployment's secret for an access token, introspect and revoke tokens.

RFC 6749 (client credentials), 7009 (revocation), 7662 (introspection), 8414 and 9728 (metadata). Errors have
OAuth's format (`web/error_responses/status_codes.py`), and caches must not store any response.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from flask import Response

from shared.identity import errors
from shared.identity.token_endpoint import token_exchange
from shared.identity.token_endpoint.oauth_metadata import (
    CLIENT_CREDENTIALS,
    TOKEN_EXCHANGE,
    authorization_server_metadata,
    protected_resource_metadata,
)
from shared.identity.token_endpoint.workflow_exchange import SubjectTokenRefused, exchange_workflow_token
from shared.identity.tokens.access_tokens import AccessToken
from shared.identity.tokens.key_rotation import PUBLICATION_SECONDS
from web.framework.authentication import Authentication, limit_failed_authentication, limit_rate
from web.framework.calls import JsonResponse, RequestContext, request_id
from web.framework.routes import FormBody, Routes
from web.http.client_address import client_address
from web.identity import oauth_schemas as schemas
from web.identity.client_forms import ClientForm, FormTooLarge, InvalidTarget, read_client_form

Result = TypeVar("Result")
routes = Routes("oauth")

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 (a type, not a secret)
SUBJECT_TOKENS = ("urn:ietf:params:oauth:token-type:id_token", "urn:ietf:params:oauth:token-type:jwt")
# RFC 6749 5.1 requires both headers.
_NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
_CLIENT = {
    "client_id": "The client id, unless it is sent by HTTP Basic.",
    "client_secret": "The client secret, unless it is sent by HTTP Basic.",
}
_TOKEN = {
    "token": "The access token.",
    "token_type_hint": "Ignored: there is one type.",
}


@routes.route(
    "POST",
    "/oauth/token",
    summary="Exchange a client id and secret, or a workflow's token, for a Version access token",
    description=(
        "There is no refresh token: request another one before `expires_in` seconds have passed. A GitHub Actions "
        "workflow of the deployment's repository sends its OpenID Connect token (RFC 8693) and no secret."
    ),
    authentication=Authentication.CLIENT,
    body=FormBody(
        fields={
            "grant_type": f"`{CLIENT_CREDENTIALS}` or `{TOKEN_EXCHANGE}`.",
            "scope": "Some of the permissions the client has, separated by spaces; all of them by default.",
            "resource": "This service's address (RFC 8707).",
            "audience": "This service's address (RFC 8693).",
            "subject_token": "The workflow's token, with this service's address as audience; valid once.",
            "subject_token_type": f"`{SUBJECT_TOKENS[0]}` or `{SUBJECT_TOKENS[1]}`.",
            "requested_token_type": f"`{ACCESS_TOKEN}`, if it is sent.",
            **_CLIENT,
        },
        required=("grant_type",),
    ),
    responses={200: schemas.TokenBody},
    errors=(
        errors.InvalidRequest,
        errors.InvalidClient,
        errors.UnauthorizedClient,
        errors.UnsupportedGrantType,
        errors.InvalidScope,
        InvalidTarget,
        FormTooLarge,
    ),
)
def issue_token(call: RequestContext) -> JsonResponse:
    with _client(call) as form:
        # Do everything within the block: it counts a refused secret or subject token against the client's
        # address.
        grant_type = form.require("grant_type")
        if grant_type not in (CLIENT_CREDENTIALS, TOKEN_EXCHANGE):
            raise errors.UnsupportedGrantType
        # Only the exchange has the parameter `audience` (RFC 8693). Both grants have `resource` (RFC 8707).
        is_exchange = grant_type == TOKEN_EXCHANGE
        _require_target(call, form, "resource", *(["audience"] if is_exchange else []))
        token = _exchange_subject(call, form) if is_exchange else _exchange_secret(call, form)
    body = schemas.TokenBody(
        access_token=token.value,
        expires_in=token.expires_in_seconds,
        scope=token.scope,
        issued_token_type=ACCESS_TOKEN if is_exchange else None,
    )
    return JsonResponse(body=body, headers=_NO_STORE)


def _require_target(call: RequestContext, form: ClientForm, *names: str) -> None:
    base_url = call.services.settings.base_url
    for name in names:
        # Ignore a trailing slash: some clients add the slash of the empty path.
        if form.parameters.get(name, base_url).rstrip("/") != base_url:
            raise InvalidTarget


def _exchange_secret(call: RequestContext, form: ClientForm) -> AccessToken:
    services = call.services
    return token_exchange.exchange(
        services.database,
        services.settings,
        services.signing_keys,
        client_id=form.client_id,
        client_secret=form.client_secret,
        scope=form.parameters.get("scope"),
    )


def _exchange_subject(call: RequestContext, form: ClientForm) -> AccessToken:
    if form.require("subject_token_type") not in SUBJECT_TOKENS:
        raise errors.InvalidRequest(f"Send a subject_token_type of {' or '.join(SUBJECT_TOKENS)}.")
    # Refuse an unsupported parameter: if it were ignored, the token would not be the requested one.
    if form.parameters.get("requested_token_type", ACCESS_TOKEN) != ACCESS_TOKEN or (
        "actor_token" in form.parameters
    ):
        raise errors.InvalidRequest(f"Send {ACCESS_TOKEN} as requested_token_type, and no actor_token.")
    services = call.services
    return exchange_workflow_token(
        services.database,
        services.settings,
        services.signing_keys,
        services.issuer_keys,
        client_id=form.client_id,
        subject_token=form.require("subject_token"),
        scope=form.parameters.get("scope"),
    )


@routes.route(
    "POST",
    "/oauth/revoke",
    summary="Revoke an access token of this client; for any other token nothing changes",
    authentication=Authentication.CLIENT,
    body=FormBody(fields={**_TOKEN, **_CLIENT}, required=("token",)),
    responses={200: None},
    errors=(errors.InvalidRequest, errors.InvalidClient, FormTooLarge),
)
def revoke_token(call: RequestContext) -> JsonResponse:
    # Respond 200 for an unknown token too: the token is invalid, as the client wants (RFC 7009 2.2).
    address = client_address(call.http.environ)
    _with_token(call, partial(token_exchange.revoke, request_id=request_id(), client_address=address))
    return JsonResponse(headers=_NO_STORE)


@routes.route(
    "POST",
    "/oauth/introspect",
    summary="Get the state of an access token of this client; any other token is inactive",
    authentication=Authentication.CLIENT,
    body=FormBody(fields={**_TOKEN, **_CLIENT}, required=("token",)),
    responses={200: schemas.IntrospectionBody},
    errors=(errors.InvalidRequest, errors.InvalidClient, FormTooLarge),
)
def introspect_token(call: RequestContext) -> Response:
    # Do not use the schema: it would add null members to an inactive token.
    return _document(_with_token(call, token_exchange.introspect), _NO_STORE)


@routes.route(
    "GET",
    "/.well-known/oauth-authorization-server",
    summary="Get the endpoints for OAuth clients and what they support (RFC 8414)",
    authentication=Authentication.PUBLIC,
    responses={200: schemas.AuthorizationServerBody},
)
def describe_authorization_server(call: RequestContext) -> Response:
    return _document(authorization_server_metadata(call.services.settings.base_url), _cacheable())


@routes.route(
    "GET",
    "/.well-known/oauth-protected-resource",
    summary="Get the authorization server of this service (RFC 9728)",
    authentication=Authentication.PUBLIC,
    responses={200: schemas.ProtectedResourceBody},
)
def describe_protected_resource(call: RequestContext) -> Response:
    return _document(protected_resource_metadata(call.services.settings.base_url), _cacheable())


@routes.route(
    "GET",
    "/.well-known/jwks.json",
    summary="Get the public keys that verify tokens, the next key included (RFC 7517)",
    authentication=Authentication.PUBLIC,
    responses={200: schemas.KeySetBody},
)
def read_key_set(call: RequestContext) -> Response:
    return _document(call.services.signing_keys.jwks(), _cacheable())


def _with_token(call: RequestContext, act: Callable[..., Result]) -> Result:
    """Call a function with the form's client and token. Return the function's result."""
    services = call.services
    with _client(call) as form:
        return act(
            services.database,
            services.settings,
            services.signing_keys,
            client_id=form.client_id,
            client_secret=form.client_secret,
            token=form.require("token"),
        )


@contextmanager
def _client(call: RequestContext) -> Iterator[ClientForm]:
    """Yield the client's form.

    A failed authentication slows down further attempts from the same address.
    """
    try:
        form = read_client_form(call)
        # The key includes the secret, so a client without the secret cannot use up the real client's rate
        # limit.
        limit_rate(f"{form.client_id}:{form.client_secret}", call.services)
        yield form
    except (errors.InvalidClient, SubjectTokenRefused):
        limit_failed_authentication(call.http, call.services)
        raise


def _cacheable() -> Mapping[str, str]:
    """Return headers that let caches store a document.

    A signing key is published for PUBLICATION_SECONDS before the service signs with it. So no cached document
    lacks a key that is in use.
    """
    return {"Cache-Control": f"public, max-age={PUBLICATION_SECONDS}"}


def _document(content: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
    response = Response(json.dumps(content), content_type="application/json")
    response.headers.update(headers)
    return response
