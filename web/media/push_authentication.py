"""Know a distribution by its token, or by what it signed with its webhook secret.

A signature covers the whole body, so a signed one is read whole before anything of it is believed, and is bounded
accordingly: longer files are pushed with the token. A stranger's bytes are neither stored nor parsed.
"""

from uuid import UUID

from shared.encryption import Encryption
from shared.errors import PermissionDenied
from shared.identity.errors import ResourceNotFound
from shared.identity.webhook_secrets import list_webhook_secrets
from shared.media.networks.webhooks import SignatureInvalid
from shared.telemetry import REFUSED_CREDENTIALS
from web.authentication import check_header_rules, limit_rate, slow_down_guessing
from web.calls import Call
from web.http.requests import MAXIMUM_JSON_BYTES
from web.http.small_bodies import read_small_body
from web.media.standard_webhooks import read_signature, verify_signature
from web.media.tenants import count_for_distribution

MAXIMUM_SIGNED_BYTES = MAXIMUM_JSON_BYTES


def require_own_token(call: Call, distribution_id: UUID) -> None:
    """Raise unless the token is this very distribution's: PermissionDenied, or ResourceNotFound for another's."""
    distribution = call.credential.distribution
    if distribution is None:
        raise PermissionDenied("Only a distribution pushes media, with its own token or signature.")
    if distribution.id != distribution_id:
        raise ResourceNotFound


def read_signed_body(call: Call, distribution_id: UUID) -> bytes:
    """Read the whole body and verify it. Raises SignatureInvalid, whatever is wrong, for whatever distribution."""
    services = call.services
    check_header_rules(call.http)
    try:
        signature = read_signature(call.http.headers, services.signing_keys.now())
        body = read_small_body(services.small_bodies, call.http.environ, MAXIMUM_SIGNED_BYTES)
        with services.database.autocommit() as session:
            secrets = list_webhook_secrets(session, Encryption(services.settings), distribution_id)
        verify_signature(signature, body, secrets)
    except SignatureInvalid:
        REFUSED_CREDENTIALS.labels(SignatureInvalid.code).inc()
        slow_down_guessing(call.http, services)
        raise
    count_for_distribution(call, distribution_id)
    limit_rate(str(distribution_id), services)
    return body
