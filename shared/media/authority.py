"""Authorize imports of media: the one check in front of every push and of every storing.

The daemon of the distribution's target deployment and the receiving identity both need FileCreate over the receiver's
files, and nothing on the way may be disabled or suspended (docs/specification/media.md#authority).
"""

from uuid import UUID

from shared.credits.storage import require_paid_storage
from shared.database import Session
from shared.errors import PermissionDenied
from shared.identity.errors import InvalidToken, OrganizationSuspended, ResourceNotFound, TargetDisabled
from shared.identity.permissions import Permission
from shared.identity.receiving import LiveReceiver, find_live_receiver
from shared.media.errors import DistributionDisabled


def authorize_import(
    session: Session, distribution_id: UUID, *, token_hash: bytes | None = None
) -> LiveReceiver:
    """Give who receives through a distribution.

    Raises ResourceNotFound, DistributionDisabled, OrganizationSuspended, InvalidToken, TargetDisabled,
    PermissionDenied, StorageUnpaid.
    """
    receiver = find_live_receiver(session, distribution_id, token_hash=token_hash)
    if receiver is None:
        raise ResourceNotFound
    if receiver.is_disabled:
        raise DistributionDisabled
    if receiver.is_suspended:
        raise OrganizationSuspended
    if not receiver.is_token_live:
        raise InvalidToken
    if not receiver.is_target_enabled:
        raise TargetDisabled
    if Permission.FILE_CREATE not in receiver.executor_permissions:
        raise PermissionDenied(
            "The deployment's daemon lacks FileCreate over the receiving identity.",
            permission=Permission.FILE_CREATE,
        )
    if Permission.FILE_CREATE not in receiver.receiver_permissions:
        raise PermissionDenied(
            "The receiving identity itself lacks FileCreate.", permission=Permission.FILE_CREATE
        )
    require_paid_storage(session, receiver.organization_id)
    return receiver
