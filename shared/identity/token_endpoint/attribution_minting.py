"""Mint a `Service-Usage-Attribution` header for a distribution that routes requests itself.

A distribution can attribute only to its own receiving identity, target deployment and organization. It chooses the
reported message id, channel and caller.
"""

from uuid import uuid4

from shared.config.settings import Settings
from shared.errors import PermissionDenied, invalid_field
from shared.identity.access.claims import ReportedCaller
from shared.identity.authentication.credential_types import Credential
from shared.identity.errors import OrganizationSuspended, TargetDisabled
from shared.identity.tokens.signing_keys import SigningKeys
from shared.identity.tokens.usage_attribution import Attribution, MintedAttribution, mint_usage_attribution

MAX_REPORTED_CHARACTERS = 200


def mint_attribution(
    keys: SigningKeys,
    settings: Settings,
    credential: Credential,
    *,
    message_id: str | None = None,
    channel: str | None = None,
    reported_caller: ReportedCaller | None = None,
) -> MintedAttribution:
    """Mint the header for one request that a distribution routes. `credential` is that of the distribution's token.

    Raises PermissionDenied for any other credential, OrganizationSuspended, TargetDisabled, and ValidationFailed for
    reported values that are empty or longer than MAX_REPORTED_CHARACTERS.
    """
    distribution = credential.distribution
    if distribution is None:
        raise PermissionDenied("Only a distribution's token can attribute a request.")
    if distribution.is_suspended:
        raise OrganizationSuspended
    if not distribution.is_target_enabled:
        raise TargetDisabled
    # Limit the lengths, because a header with a limited size carries these values.
    _require_short("messageId", message_id)
    _require_short("channel", channel)
    if reported_caller is not None:
        _require_short("reportedCaller.id", reported_caller.id)
        _require_short("reportedCaller.display", reported_caller.display)
    # Take everything except the reported values from the distribution's row, so that the sender cannot choose a
    # payer.
    attribution = Attribution(
        principal_id=distribution.principal_id,
        daemon_id=distribution.daemon_id,
        deployment_id=distribution.deployment_id,
        version_id=distribution.version_id,
        payer_id=distribution.organization_id,
        distribution_id=distribution.id,
        transaction_id=str(uuid4()),
        channel=channel,
        message_id=message_id,
        reported_caller=reported_caller,
    )
    return mint_usage_attribution(keys, settings, attribution)


def _require_short(field: str, value: str | None) -> None:
    if value is not None and not 1 <= len(value) <= MAX_REPORTED_CHARACTERS:
        message = f"must have 1 to {MAX_REPORTED_CHARACTERS} characters"
        raise invalid_field(field, message)
