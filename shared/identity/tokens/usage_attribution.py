"""`Service-Usage-Attribution`: a signed header that names the identity and the payer for which a deployment works.

The service mints the header when it routes a request to a deployment, and the deployment sends the header with
every callback. The receiving identity that the header names owns the files that the callbacks write. The header is
bound to one deployment and can be reused until it expires; the package's `README.md` describes the remaining risk.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from shared.config.settings import Settings
from shared.errors import ValidationFailed
from shared.identity.access.claims import AttributionClaims, ReportedCaller
from shared.identity.tokens.jws import MAX_TOKEN_CHARACTERS, TokenRefused, identifier, seconds, text
from shared.identity.tokens.key_rotation import KeyPurpose
from shared.identity.tokens.signing_keys import SigningKeys

TYPE = "usage-attribution+jwt"
SCOPE = "callback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The contents of an attribution.

    `principal_id` owns the output. `daemon_id` is the daemon at the time of routing; permissions are those of the
    current daemon. `transaction_id` identifies the routed request.
    """

    principal_id: UUID
    daemon_id: UUID
    deployment_id: UUID
    version_id: UUID | None
    payer_id: UUID
    distribution_id: UUID | None
    transaction_id: str
    channel: str | None
    message_id: str | None
    reported_caller: ReportedCaller | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MintedAttribution:
    """The header value for a routed request."""

    value: str = field(repr=False)
    transaction_id: str
    expires_at: datetime


def mint_usage_attribution(
    keys: SigningKeys, settings: Settings, attribution: Attribution
) -> MintedAttribution:
    """Sign a header value. Raises ValidationFailed if the reported values make it longer than MAX_TOKEN_CHARACTERS."""
    # Use the database's clock, as verification does: a host's clock may be wrong.
    issued_at = int(keys.now())
    expires_at = issued_at + settings.attribution_seconds
    claims = {
        "iss": settings.base_url,
        "aud": audience(settings),
        "iat": issued_at,
        "exp": expires_at,
        "jti": str(uuid4()),
        "txn": attribution.transaction_id,
        "sub": str(attribution.principal_id),
        "act": {"sub": str(attribution.daemon_id)},
        "deployment_id": str(attribution.deployment_id),
        "version_id": _optional(attribution.version_id),
        "payer": str(attribution.payer_id),
        "distribution_id": _optional(attribution.distribution_id),
        "scope": SCOPE,
        "rctx": _request_context(attribution),
    }
    value = keys.sign(KeyPurpose.ATTRIBUTION, _without_none(claims), typ=TYPE)
    # Check the length after signing, because JSON escapes and base64 make it hard to predict.
    if len(value) > MAX_TOKEN_CHARACTERS:
        raise ValidationFailed(
            "The message id, channel and reported caller are too long for the attribution header. Shorten them."
        )
    return MintedAttribution(
        value=value,
        transaction_id=attribution.transaction_id,
        expires_at=datetime.fromtimestamp(expires_at, tz=UTC),
    )


def verify_usage_attribution(keys: SigningKeys, settings: Settings, value: str) -> AttributionClaims:
    """Return the claims of a header after checking signature, type, issuer, audience and times.

    The caller must check that the claims name its deployment. Raises TokenExpired, TokenRefused.
    """
    verified = keys.verify(KeyPurpose.ATTRIBUTION, value, typ=TYPE, audience=audience(settings))
    claims = verified.claims
    # Check the scope too: the same key also signs request tokens, so the type alone does not identify an
    # attribution.
    if claims.get("scope") != SCOPE:
        raise TokenRefused("scope")
    return AttributionClaims(
        kid=verified.kid,
        principal_id=identifier(claims, "sub"),
        deployment_id=identifier(claims, "deployment_id"),
        payer_id=identifier(claims, "payer"),
        distribution_id=identifier(claims, "distribution_id") if "distribution_id" in claims else None,
        transaction_id=text(claims, "txn"),
        reported_caller=_read_reported_caller(claims.get("rctx")),
        expires_at_seconds=seconds(claims, "exp"),
    )


def audience(settings: Settings) -> str:
    """Return the audience of attributions, which differs from the audience of access tokens."""
    return f"{settings.base_url}/usage-attribution"


def _request_context(attribution: Attribution) -> dict[str, Any] | None:
    caller = attribution.reported_caller
    context = {
        "channel": attribution.channel,
        "message_id": attribution.message_id,
        "reported_caller": _without_none({"id": caller.id, "display": caller.display}) if caller else None,
    }
    return _without_none(context) or None


def _read_reported_caller(context: object) -> ReportedCaller | None:
    reported = context.get("reported_caller") if isinstance(context, dict) else None
    if not isinstance(reported, dict):
        return None
    return ReportedCaller(id=str(reported.get("id")), display=reported.get("display"))


def _without_none(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _optional(value: UUID | None) -> str | None:
    return None if value is None else str(value)
