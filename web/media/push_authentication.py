"""Authenticate a distribution by its token, or by a signature with its webhook secret.

A signature covers the whole body, so a signed body is read into memory and limited to MAXIMUM_SIGNED_BYTES.
Larger files are pushed with the token. Bytes of an anonymous client are neither stored nor parsed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import parse_qsl
from uuid import UUID

from shared.db.database import Session
from shared.encryption import Encryption
from shared.errors import PermissionDenied
from shared.identity.credentials.webhook_secrets import list_webhook_secrets
from shared.identity.errors import ResourceNotFound
from shared.media.importing.authority import Proof
from shared.media.networks.signatures import check_signed_headers, verify
from shared.media.networks.standard_webhooks import STANDARD_WEBHOOKS, standard_names, webhook_credentials
from shared.media.networks.webhooks import SignatureInvalid, WebhookRequest
from shared.observability.telemetry import REFUSED_CREDENTIALS
from web.framework.authentication import check_header_rules, limit_failed_authentication, limit_rate
from web.framework.calls import RequestContext
from web.http.requests import MAXIMUM_JSON_BYTES
from web.media.distribution_admission import count_for_distribution

MAXIMUM_SIGNED_BYTES = MAXIMUM_JSON_BYTES
MAXIMUM_QUERY_FIELDS = 100


def read_pushed_body(call: RequestContext, distribution_id: UUID) -> tuple[bytes | None, Proof]:
    """Authenticate a push. Return the body if a signature over it was verified, and the proof.

    Raises SignatureInvalid, PermissionDenied if the token is not a distribution's token, and ResourceNotFound
    if the token belongs to another distribution.
    """
    if not call.has_credential:
        return _read_signed_body(call, distribution_id)
    distribution = call.credential.distribution
    if distribution is None:
        raise PermissionDenied("Only a distribution may push media. Use its token, or sign with its secret.")
    if distribution.id != distribution_id:
        raise ResourceNotFound
    return None, Proof(token_hash=distribution.token_hash)


def _read_signed_body(call: RequestContext, distribution_id: UUID) -> tuple[bytes, Proof]:
    """Read the whole body and verify its signature.

    Raises SignatureInvalid. Every cause has the same text, which must not reveal which distributions exist.
    """
    services = call.services
    encryption = Encryption(services.settings)
    check_header_rules(call.http)
    with brute_force_throttle(call):
        request = standard_names(webhook_request(call, b""))
        # Check the headers before the body is read: a request without plausible headers then costs no memory.
        check_signed_headers(STANDARD_WEBHOOKS, request)
        body = call.read_small_body(MAXIMUM_SIGNED_BYTES)
        signed = replace(request, body=body)

        # Return a function: the transaction that commits the push verifies again, because the secret may be
        # replaced meanwhile.
        def require_signature(session: Session) -> None:
            secrets = list_webhook_secrets(session, encryption, distribution_id)
            verify(STANDARD_WEBHOOKS, signed, webhook_credentials(secrets))

        with services.database.autocommit() as session:
            require_signature(session)
    count_for_distribution(call, distribution_id)
    limit_rate(str(distribution_id), services)
    return body, Proof(require_signature=require_signature)


@contextmanager
def brute_force_throttle(call: RequestContext) -> Iterator[None]:
    """Count each SignatureInvalid that the block raises, and slow the client down."""
    try:
        yield
    except SignatureInvalid:
        REFUSED_CREDENTIALS.labels(SignatureInvalid.code).inc()
        limit_failed_authentication(call.http, call.services)
        raise


def webhook_request(call: RequestContext, body: bytes) -> WebhookRequest:
    """Return the fields of a request that a signature is verified against."""
    query_string = call.http.environ.get("QUERY_STRING", "")
    # Use the public address and not the Host header: some networks sign the URL that they were configured
    # with.
    address = call.services.settings.base_url + call.http.path
    return WebhookRequest(
        method=call.http.method,
        public_url=f"{address}?{query_string}" if query_string else address,
        query=_parameters(query_string),
        headers={name.lower(): value for name, value in call.http.headers.items()},
        body=body,
        received_at=call.services.signing_keys.now(),
    )


def _parameters(query_string: str) -> Mapping[str, str]:
    """Parse the query. The first value of each name counts.

    A query with too many fields counts as empty.
    """
    try:
        pairs = parse_qsl(query_string, keep_blank_values=True, max_num_fields=MAXIMUM_QUERY_FIELDS)
    except ValueError:
        return {}
    # The last value of a name stays in a dictionary, so reverse the pairs to keep the first.
    return dict(reversed(pairs))
