"""Receive signed events of payment systems, and enter them as top-ups and adjustments.

An event is processed only after the signature over its exact bytes is verified. Without a valid signature,
the response is the same for an existing and an unknown source.
"""

from shared.config.payment_sources import PaymentSource
from shared.credits.errors import BalanceOutOfRange, PaymentNotUnderstood, PaymentUnknown
from shared.credits.payments.payment_entries import PaymentResult, enter_payment_event
from shared.errors import ServiceUnavailable, ValidationFailed
from shared.files.errors import ContentTooLarge, UploadTimeout
from shared.identity.errors import ResourceNotFound
from shared.media.networks.signatures import verify
from shared.media.networks.standard_webhooks import webhook_credentials
from shared.media.networks.webhooks import SignatureInvalid, WebhookRequest
from shared.observability.telemetry import REFUSED_CREDENTIALS
from web.credits.payment_signatures import SIGNATURES
from web.dependencies.rate_limits import RateLimited
from web.framework.authentication import Authentication, limit_failed_authentication, limit_rate
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import RawBody, Routes
from web.http.requests import MAXIMUM_JSON_BYTES, MalformedJson, parse_json
from web.http.wire_types import CamelModel

routes = Routes("payments")


class ReceivedPayment(CamelModel):
    """The result of a payment event."""

    result: PaymentResult


@routes.route(
    "POST",
    "/payments/<source>/events",
    summary="Send a signed event of a payment system, which adds or removes credits once",
    description=(
        "`source` is one of the operators' PAYMENT_SOURCES. Stripe signs its events in `Stripe-Signature`, other "
        "systems as in Standard Webhooks. Events that do not concern an organization's credits are ignored."
    ),
    authentication=Authentication.PAYMENT_SIGNATURE,
    body=RawBody(media_types=("application/json",)),
    responses={200: ReceivedPayment},
    errors=(
        SignatureInvalid,
        RateLimited,
        ContentTooLarge,
        UploadTimeout,
        MalformedJson,
        PaymentNotUnderstood,
        PaymentUnknown,
        ResourceNotFound,
        ValidationFailed,
        BalanceOutOfRange,
        ServiceUnavailable,
    ),
)
def receive_payment_event(call: RequestContext, source: str) -> JsonResponse:
    body = call.read_small_body(MAXIMUM_JSON_BYTES)
    known = _verified(call, source, body)
    # Count after the signature is verified: otherwise anonymous clients could exhaust a payment system's rate
    # limit.
    limit_rate(f"payments:{source}", call.services)
    event = parse_json(body)
    with call.services.database.transaction() as session:
        result = enter_payment_event(session, name=source, source=known, event=event)
    return JsonResponse(body=ReceivedPayment(result=result))


def _verified(call: RequestContext, name: str, body: bytes) -> PaymentSource:
    """Return the source that signed the event. Raises SignatureInvalid."""
    source = call.services.settings.payment_sources.get(name)
    try:
        # Treat an unknown source like a wrong signature: the response must not reveal the names of sources.
        if source is None:
            raise SignatureInvalid
        # Try all secrets: two are valid while a secret is rotated.
        secrets = [secret.get_secret_value() for secret in source.secrets]
        verify(SIGNATURES[source.kind], _request(call, body), webhook_credentials(secrets))
    except SignatureInvalid:
        REFUSED_CREDENTIALS.labels(SignatureInvalid.code).inc()
        # Count a wrong signature like a wrong credential, so that signatures cannot be guessed at full speed.
        limit_failed_authentication(call.http, call.services)
        raise
    return source


def _request(call: RequestContext, body: bytes) -> WebhookRequest:
    return WebhookRequest(
        method=call.http.method,
        public_url=call.services.settings.base_url + call.http.path,
        query={},
        headers={name.lower(): value for name, value in call.http.headers.items()},
        body=body,
        # Use the clock of the database, which all processes share: a host's clock may be wrong.
        received_at=call.services.signing_keys.now(),
    )
