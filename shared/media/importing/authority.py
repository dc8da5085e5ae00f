"""Authorize imports of media. Every push, and every transaction that stores media, calls this module.

Two identities need FileCreate on the receiver's files: the receiving identity, and the daemon identity of the
distribution's target deployment. The distribution, the deployment and their organization must not be disabled or
suspended (docs/specification/media.md#authority).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select

from shared.credits.errors import StorageUnpaid
from shared.credits.storage_billing.daily_charges import refuse_unpaid_storage, storage_is_refused
from shared.db.database import Session
from shared.db.statements import Prepared
from shared.errors import DomainError, PermissionDenied
from shared.identity.access.permissions import Permission
from shared.identity.authentication.distribution_lookup import LIVE_RECEIVER, LiveReceiver, read_receiver
from shared.identity.errors import InvalidToken, OrganizationSuspended, ResourceNotFound, TargetDisabled
from shared.media.errors import DistributionDisabled, NetworkNotConfigured, SourceRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The way in which a distribution was authenticated. The transaction that commits a push checks it again."""

    token_hash: bytes | None = None
    require_signature: Callable[[Session], None] | None = None
    """Raises SignatureInvalid if none of the distribution's secrets made the signature."""


UNPROVEN = Proof()
"""The proof for work that does not need the distribution's credential, such as a fetch by a worker."""


def authorize_import(session: Session, distribution_id: UUID, proof: Proof = UNPROVEN) -> LiveReceiver:
    """Return the receiving identity of a distribution's imports.

    Raises ResourceNotFound, DistributionDisabled, OrganizationSuspended, InvalidToken, SignatureInvalid,
    TargetDisabled, PermissionDenied and StorageUnpaid.
    """
    row = _read(session, distribution_id, proof)
    receiver = _require_live(session, read_receiver(row), proof)
    require_executor(receiver, Permission.FILE_CREATE)
    if Permission.FILE_CREATE not in receiver.receiver_permissions:
        raise PermissionDenied(
            "The receiving identity itself lacks FileCreate.", permission=Permission.FILE_CREATE
        )
    # Check this last: a caller without the permission must not learn whether the organization owes for storage.
    refuse_unpaid_storage(is_refused=row.is_storage_refused)
    return receiver


def authorize_message(session: Session, distribution_id: UUID, proof: Proof = UNPROVEN) -> LiveReceiver:
    """Return the receiving identity of a distribution's text messages, which are not stored as files.

    Raises ResourceNotFound, DistributionDisabled, OrganizationSuspended, InvalidToken, SignatureInvalid and
    TargetDisabled.
    """
    return _require_live(session, read_receiver(_read(session, distribution_id, proof)), proof)


def needs_operator(error: DomainError) -> bool:
    """Return whether an administrator can resolve the error. If so, the import should pause."""
    return isinstance(error, _OPERATOR_ERRORS)


def find_organization(session: Session, distribution_id: UUID) -> UUID:
    """Return a distribution's organization. Raises ResourceNotFound."""
    found: UUID = _read(session, distribution_id, UNPROVEN).organization_id
    return found


def require_executor(receiver: LiveReceiver, permission: Permission) -> None:
    """Raise PermissionDenied unless the target deployment's daemon identity has this permission."""
    if permission not in receiver.executor_permissions:
        raise PermissionDenied(
            f"The deployment's daemon lacks {permission} over the receiving identity.", permission=permission
        )


def _read(session: Session, distribution_id: UUID, proof: Proof) -> Any:
    row = session.fetch_one(_AUTHORITY, {"distribution": distribution_id, "token": proof.token_hash})
    if row is None:
        raise ResourceNotFound
    return row


def _require_live(session: Session, receiver: LiveReceiver, proof: Proof) -> LiveReceiver:
    if receiver.is_disabled:
        raise DistributionDisabled
    if receiver.is_suspended:
        raise OrganizationSuspended
    # Check the credential again: it may have been revoked since the request was authenticated.
    if not receiver.is_token_live:
        raise InvalidToken
    if proof.require_signature is not None:
        proof.require_signature(session)
    if not receiver.is_target_enabled:
        raise TargetDisabled
    return receiver


_OPERATOR_ERRORS = (
    DistributionDisabled,
    OrganizationSuspended,
    TargetDisabled,
    PermissionDenied,
    StorageUnpaid,
    NetworkNotConfigured,
    SourceRefused,
)
_receiver = LIVE_RECEIVER.subquery()
_AUTHORITY = Prepared(
    select(_receiver, storage_is_refused(_receiver.c.organization_id).label("is_storage_refused"))
)
