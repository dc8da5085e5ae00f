"""Authentication of a request: its credential, the rules for its headers, and the rate limit of its credential.

The order of checks reveals nothing to a client without a valid credential. An invalid credential is refused
before any header or parameter is checked. The attribution is verified only after the parameters are valid
(`web/framework/routes.py`).
"""

import hashlib
from enum import Enum

from flask import Request, g

from shared.errors import DomainError, Kind
from shared.fairness.admission import anonymous_key
from shared.identity.authentication.credential_types import Credential
from shared.identity.errors import (
    AttributionEmpty,
    AttributionRepeated,
    AuthenticationRequired,
    ExpiredToken,
    InvalidToken,
    PrincipalSelectorNotAllowed,
)
from shared.observability.telemetry import bind_log_context
from web.dependencies.rate_limits import refuse_excess
from web.dependencies.services import Services
from web.http.client_address import client_address
from web.http.wsgi_middleware import GRANTS

API_KEY_HEADER = "x-api-key"
SESSION_COOKIE = "__Host-qm"
ATTRIBUTION_HEADER = "Service-Usage-Attribution"


class Authentication(Enum):
    """How a route identifies its caller. Each route declares one member.

    - API_KEY_CALLER also accepts the credential as `x-api-key`, which Anthropic's clients send.
    - SIGNATURE and PAYMENT_SIGNATURE: the handler verifies the request's signature.
    - DISTRIBUTION_OR_SIGNATURE: if the request has no credential, the handler verifies its signature.
    - PREFLIGHT is public: a browser sends a preflight request with or without a read grant in the URL.
    - SESSION is a browser's cookie, which is valid for the console only.
    """

    PUBLIC = "public"
    CALLER = "caller"
    API_KEY_CALLER = "caller, by any header"
    GRANT_OR_CALLER = "grant or caller"
    CLIENT = "client"
    DISTRIBUTION = "distribution"
    DISTRIBUTION_OR_SIGNATURE = "distribution or signature"
    SIGNATURE = "signature"
    PAYMENT_SIGNATURE = "payment signature"
    PREFLIGHT = "preflight"
    SESSION = "session"

    @property
    def has_caller(self) -> bool:
        """Whether the credential belongs to a caller. A distribution's opens only its own routes."""
        return self in (
            Authentication.CALLER,
            Authentication.API_KEY_CALLER,
            Authentication.GRANT_OR_CALLER,
            Authentication.SESSION,
        )

    @property
    def takes_grants(self) -> bool:
        """Whether the URL may contain a read grant."""
        return self in (Authentication.GRANT_OR_CALLER, Authentication.PREFLIGHT)


_WITHOUT_CREDENTIAL = (
    Authentication.PUBLIC,
    Authentication.PREFLIGHT,
    Authentication.CLIENT,
    Authentication.SIGNATURE,
    Authentication.PAYMENT_SIGNATURE,
)


def authenticate(how: Authentication, http: Request, services: Services) -> Credential | None:
    """Verify the request's credential.

    Return None if the route needs no credential, or if the route also accepts this request without one.
    """
    if how in _WITHOUT_CREDENTIAL:
        return None
    # The handler verifies the grant. If a request has a grant, its credential is ignored.
    if how is Authentication.GRANT_OR_CALLER and http.environ.get(GRANTS):
        return None
    if how is Authentication.SESSION:
        return _authenticate_session(http, services)
    authorization = _authorization(how, http)
    # A token takes precedence over a signature.
    if how is Authentication.DISTRIBUTION_OR_SIGNATURE and authorization is None and _is_signed(http):
        return None
    try:
        return services.lookups.recognize(authorization, client_address(http.environ))
    except DomainError as error:
        # A database outage does not show that the credential is wrong, so do not count it as a guess: the
        # client would be locked out afterwards. Do not count an expired token either: its holder must learn
        # that it has expired.
        is_guess = error.kind is Kind.UNAUTHENTICATED and not isinstance(error, ExpiredToken)
        if authorization and is_guess:
            limit_failed_authentication(http, services)
        raise


def _authenticate_session(http: Request, services: Services) -> Credential:
    token = http.cookies.get(SESSION_COOKIE)
    if not token:
        raise AuthenticationRequired
    try:
        return services.lookups.recognize_session(token, client_address(http.environ))
    except InvalidToken:
        limit_failed_authentication(http, services)
        raise


def _authorization(how: Authentication, http: Request) -> str | None:
    """Return the credential in the form of an `Authorization` header.

    If the client sends `Authorization` and `x-api-key`, `Authorization` counts.
    """
    authorization: str | None = http.headers.get("Authorization")
    api_key = http.headers.get(API_KEY_HEADER) if how is Authentication.API_KEY_CALLER else None
    return f"Bearer {api_key}" if authorization is None and api_key else authorization


def _is_signed(http: Request) -> bool:
    """Return whether a request has Standard Webhooks headers. The handler verifies the signature."""
    return "webhook-signature" in http.headers or "svix-signature" in http.headers


def check_header_rules(http: Request) -> str | None:
    """Return the attribution header. Refuse an empty or repeated attribution, and a principal selector."""
    if "Service-Principal-Selector" in http.headers:
        raise PrincipalSelectorNotAllowed
    attribution: str | None = http.headers.get(ATTRIBUTION_HEADER)
    if attribution is None:
        return None
    if not attribution.strip():
        raise AttributionEmpty
    # A proxy or WSGI server joins repeated headers with commas, so refuse a comma.
    if "," in attribution:
        raise AttributionRepeated
    return attribution.strip()


def bind_credential_to_log(credential: Credential | None) -> None:
    """Add credential, actor and organization to all further log lines of this request."""
    if credential is None:
        return
    caller, distribution = credential.caller, credential.distribution
    bind_log_context(
        credential_id=credential.id,
        actor=f"{caller.executor.kind}:{caller.executor.id}" if caller else f"Distribution:{credential.id}",
        organization_id=caller.organization_id if caller else distribution and distribution.organization_id,
    )


def limit_rate(credential: str, services: Services) -> None:
    """Count one request against the rate limit of a credential, identified by its id or by the complete secret.

    Do not use the header as the key: other spaces or capitals in the header would start a new count. Raises
    RateLimited.
    """
    allowance = services.rate_limiter.take(
        # Hash the credential: Valkey stores this key, and must not contain a secret.
        hashlib.sha256(credential.encode("utf-8", "surrogatepass")).hexdigest()[:32],
        services.settings.rate_limit_per_minute,
    )
    if allowance is not None:
        g.rate_limit = allowance
        refuse_excess(allowance)


def limit_failed_authentication(http: Request, services: Services) -> None:
    """Count a failed authentication against the client's address. Raises RateLimited if there were too many."""
    allowance = services.rate_limiter.take(
        f"refused:{anonymous_key(client_address(http.environ)).member}",
        services.settings.failed_logins_per_minute,
    )
    if allowance is not None:
        refuse_excess(allowance)
