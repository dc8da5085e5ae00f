"""Who asks: the credential in the header, the header rules, the principals of the call.

The order leaks nothing: a bad credential is refused before any header or parameter is looked at; the attribution is
verified only after the parameters are known to be sound (see `web/framework/routes.py`).
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
    """How a route knows its caller; each states one.

    An API_KEY_CALLER may send the credential as `x-api-key`, as Anthropic's clients do. With SIGNATURE and
    PAYMENT_SIGNATURE the handler checks the request's signature, with DISTRIBUTION_OR_SIGNATURE that of a request
    without a credential. PREFLIGHT is public: a browser asks with the address of a read grant or without. A SESSION is
    a browser's cookie, which counts for the console alone.
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
        """Whether a credential that was presented stands for a caller; a distribution's serves its own routes."""
        return self in (
            Authentication.CALLER,
            Authentication.API_KEY_CALLER,
            Authentication.GRANT_OR_CALLER,
            Authentication.SESSION,
        )

    @property
    def takes_grants(self) -> bool:
        """Whether the address may hold a read grant."""
        return self in (Authentication.GRANT_OR_CALLER, Authentication.PREFLIGHT)


_WITHOUT_CREDENTIAL = (
    Authentication.PUBLIC,
    Authentication.PREFLIGHT,
    Authentication.CLIENT,
    Authentication.SIGNATURE,
    Authentication.PAYMENT_SIGNATURE,
)


def authenticate(how: Authentication, http: Request, services: Services) -> Credential | None:
    """Verify the request's credential, or find that none is needed."""
    if how in _WITHOUT_CREDENTIAL:
        return None
    if how is Authentication.GRANT_OR_CALLER and http.environ.get(GRANTS):
        return None
    if how is Authentication.SESSION:
        return _authenticate_session(http, services)
    authorization = _authorization(how, http)
    if how is Authentication.DISTRIBUTION_OR_SIGNATURE and authorization is None and _is_signed(http):
        return None
    try:
        return services.lookups.recognize(authorization, client_address(http.environ))
    except DomainError as error:
        # A database that is away says nothing about the credential, and must not lock its holder out afterwards.
        # Nor is an expired token a guess: its holder needs to hear just that.
        is_guess = error.kind is Kind.UNAUTHENTICATED and not isinstance(error, ExpiredToken)
        if authorization and is_guess:
            throttle_guessing(http, services)
        raise


def _authenticate_session(http: Request, services: Services) -> Credential:
    token = http.cookies.get(SESSION_COOKIE)
    if not token:
        raise AuthenticationRequired
    try:
        return services.lookups.recognize_session(token, client_address(http.environ))
    except InvalidToken:
        throttle_guessing(http, services)
        raise


def _authorization(how: Authentication, http: Request) -> str | None:
    """Give the credential as the header has it; `Authorization` counts where both are sent."""
    authorization: str | None = http.headers.get("Authorization")
    api_key = http.headers.get(API_KEY_HEADER) if how is Authentication.API_KEY_CALLER else None
    return f"Bearer {api_key}" if authorization is None and api_key else authorization


def _is_signed(http: Request) -> bool:
    """Tell whether a request claims to be signed as Standard Webhooks are; the handler checks the claim."""
    return "webhook-signature" in http.headers or "svix-signature" in http.headers


def check_header_rules(http: Request) -> str | None:
    """Give the attribution header as sent; refuse an empty or repeated one, and a principal selector."""
    if "Service-Principal-Selector" in http.headers:
        raise PrincipalSelectorNotAllowed
    attribution: str | None = http.headers.get(ATTRIBUTION_HEADER)
    if attribution is None:
        return None
    if not attribution.strip():
        raise AttributionEmpty
    if "," in attribution:
        raise AttributionRepeated
    return attribution.strip()


def name_in_log(credential: Credential | None) -> None:
    """Add credential, actor and organization to every further log line of this request."""
    if credential is None:
        return
    caller, distribution = credential.caller, credential.distribution
    bind_log_context(
        credential_id=credential.id,
        actor=f"{caller.executor.kind}:{caller.executor.id}" if caller else f"Distribution:{credential.id}",
        organization_id=caller.organization_id if caller else distribution and distribution.organization_id,
    )


def limit_rate(credential: str, services: Services) -> None:
    """Take one request from what a credential, named by its id or by all that was sent, may ask in a minute.

    Never by a header as sent: spaces and capitals in it, or one more token, would start a new count.
    """
    allowance = services.rate_limiter.take(
        hashlib.sha256(credential.encode("utf-8", "surrogatepass")).hexdigest()[:32],
        services.settings.rate_limit_per_minute,
    )
    if allowance is not None:
        g.rate_limit = allowance
        refuse_excess(allowance)


def throttle_guessing(http: Request, services: Services) -> None:
    """Count a refused credential against its address; raise `RateLimited` when there were too many."""
    allowance = services.rate_limiter.take(
        f"refused:{anonymous_key(client_address(http.environ)).member}",
        services.settings.failed_logins_per_minute,
    )
    if allowance is not None:
        refuse_excess(allowance)
