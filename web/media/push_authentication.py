"""Authenticate a distribution by its token, or by what it signed with its webhook secret.

A signature covers the whole body, which is therefore read whole and bounded; longer files are pushed with the token.
A stranger's bytes are neither stored nor parsed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import parse_qsl
from uuid import UUID

from shared.encryption import Encryption
from shared.errors import PermissionDenied
from shared.identity.errors import ResourceNotFound
from shared.identity.webhook_secrets import list_webhook_secrets
from shared.media.networks.signatures import check_head, verify
from shared.media.networks.standard_webhooks import STANDARD_WEBHOOKS, standard_names, webhook_credentials
from shared.media.networks.webhooks import SignatureInvalid, WebhookRequest
from shared.telemetry import REFUSED_CREDENTIALS
from web.authentication import check_header_rules, limit_rate, slow_down_guessing
from web.calls import Call
from web.http.receive_deadlines import read_small_body
from web.http.requests import MAXIMUM_JSON_BYTES
from web.media.tenants import count_for_distribution

MAXIMUM_SIGNED_BYTES = MAXIMUM_JSON_BYTES
MAXIMUM_QUERY_FIELDS = 100


def require_own_token(call: Call, distribution_id: UUID) -> None:
    """Raise unless the token is this very distribution's: PermissionDenied, or ResourceNotFound for another's."""
    distribution = call.credential.distribution
    if distribution is None:
        raise PermissionDenied("Only a distribution pushes media, with its own token or signature.")
    if distribution.id != distribution_id:
        raise ResourceNotFound


def token_hash_of(call: Call) -> bytes | None:
    """Give the hash of the token that a push came with; None for one that is signed."""
    distribution = call.credential.distribution if call.has_credential else None
    return distribution.token_hash if distribution is not None else None


def read_signed_body(call: Call, distribution_id: UUID) -> bytes:
    """Read the whole body and verify it. Raises SignatureInvalid, whatever is wrong, for whatever distribution."""
    services = call.services
    check_header_rules(call.http)
    with guesses_slowed_down(call):
        request = standard_names(webhook_request(call, b""))
        check_head(STANDARD_WEBHOOKS, request)
        body = read_small_body(services.small_bodies, call.http.environ, MAXIMUM_SIGNED_BYTES)
        with services.database.autocommit() as session:
            secrets = list_webhook_secrets(session, Encryption(services.settings), distribution_id)
        verify(STANDARD_WEBHOOKS, replace(request, body=body), webhook_credentials(secrets))
    count_for_distribution(call, distribution_id)
    limit_rate(str(distribution_id), services)
    return body


@contextmanager
def guesses_slowed_down(call: Call) -> Iterator[None]:
    """Count the invalid signatures of a block, and slow their sender down."""
    try:
        yield
    except SignatureInvalid:
        REFUSED_CREDENTIALS.labels(SignatureInvalid.code).inc()
        slow_down_guessing(call.http, call.services)
        raise


def webhook_request(call: Call, body: bytes) -> WebhookRequest:
    """Give a request as what its signature is checked against."""
    query_string = call.http.environ.get("QUERY_STRING", "")
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
    """Read the query, the first value of each name; one of more fields than networks send is empty."""
    try:
        pairs = parse_qsl(query_string, keep_blank_values=True, max_num_fields=MAXIMUM_QUERY_FIELDS)
    except ValueError:
        return {}
    return dict(reversed(pairs))
