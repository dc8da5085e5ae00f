"""Make the caller with which an agent works during a turn: its service account, an owner and a payer.

A caller's attribution is valid for the caller's deployment only. So the agent gets a new attribution, with the same
receiving identity, payer and transaction. Without a receiving identity the agent's service account owns the files that
the agent stores. The permissions and states are read at the start of each turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select

from shared.db.database import Session
from shared.errors import DomainError, Kind
from shared.identity.access.callers import Caller, Executor, ExecutorKind, Owner, OwnerKind
from shared.identity.access.claims import ReportedCaller
from shared.identity.access.effective_permissions import PermissionsByScope, bindings_of, identity_permissions
from shared.identity.tables import deployments, identities, organizations, role_bindings
from shared.identity.tokens.usage_attribution import Attribution

CHANNEL = "a2a"


class AgentUnavailable(DomainError):
    """The agent, or the identity it would work for, is disabled."""

    code = "agent_unavailable"
    kind = Kind.DENIED


@dataclass(frozen=True, slots=True, kw_only=True)
class OnBehalf:
    """The values of a call that are stored with the call's turn.

    `owner_id` is None if the agent's service account will own the files of the turn.
    """

    owner_id: UUID | None
    payer_id: UUID
    distribution_id: UUID | None
    transaction_id: str
    reported_caller: Mapping[str, Any] | None
    channel: str = CHANNEL
    """The channel on which the message arrived: the protocol, or the network of a distribution."""

    @classmethod
    def of(cls, caller: Caller, *, transaction_id: str) -> OnBehalf:
        """Return the values of a call that its turn stores. The owner is stored only if the call has an attribution."""
        if caller.payer_id is None:
            # `authorize` has checked the payer, so a missing payer is a mistake in the code.
            raise RuntimeError("a caller without payer was let through")
        is_attributed = caller.transaction_id is not None and caller.owner is not None
        reported = caller.reported_caller
        return cls(
            owner_id=caller.owner.id if is_attributed and caller.owner is not None else None,
            payer_id=caller.payer_id,
            distribution_id=caller.distribution_id,
            transaction_id=caller.transaction_id or transaction_id,
            reported_caller={"id": reported.id, "display": reported.display} if reported else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """The live service account (Daemon Identity) of an agent, with its permissions."""

    id: UUID
    organization_id: UUID
    version_id: UUID | None
    permissions: PermissionsByScope


def make_agent_caller(
    deployment_id: UUID, daemon: Daemon | None, owner: Owner | None, on_behalf: OnBehalf, *, message_id: str
) -> tuple[Caller, Attribution]:
    """Return the caller with which an agent works, and an attribution with the same values.

    `daemon` and `owner` have the values of the current rows, and are None if the identity is disabled. Raises
    AgentUnavailable.
    """
    # Fail if the owner is disabled: the service account must not replace the owner, because its permissions differ.
    if daemon is None or (owner is None and on_behalf.owner_id is not None):
        raise AgentUnavailable
    if owner is None:
        owner = Owner(kind=OwnerKind.DAEMON_IDENTITY, id=daemon.id, organization_id=daemon.organization_id)
    reported = ReportedCaller(**on_behalf.reported_caller) if on_behalf.reported_caller else None
    caller = Caller(
        executor=Executor(kind=ExecutorKind.DAEMON_IDENTITY, id=daemon.id),
        credential_id=deployment_id,
        organization_id=daemon.organization_id,
        owner=owner,
        payer_id=on_behalf.payer_id,
        deployment_id=deployment_id,
        version_id=daemon.version_id,
        distribution_id=on_behalf.distribution_id,
        transaction_id=on_behalf.transaction_id,
        reported_caller=reported,
        permissions_by_scope=daemon.permissions,
    )
    attribution = Attribution(
        principal_id=owner.id,
        daemon_id=daemon.id,
        deployment_id=deployment_id,
        version_id=daemon.version_id,
        payer_id=on_behalf.payer_id,
        distribution_id=on_behalf.distribution_id,
        transaction_id=on_behalf.transaction_id,
        channel=on_behalf.channel,
        message_id=message_id,
        reported_caller=reported,
    )
    return caller, attribution


def find_daemon(session: Session, deployment_id: UUID) -> Daemon | None:
    """Return an agent's service account, or None if the account, the agent or the organization is disabled."""
    row = session.execute(_DAEMON.where(deployments.c.id == deployment_id)).one_or_none()
    if row is None or row.suspended_at is not None:
        return None
    return Daemon(
        id=row.daemon_identity_id,
        organization_id=row.organization_id,
        version_id=row.active_version_id,
        permissions=identity_permissions(row.bindings),
    )


def find_owner(session: Session, owner_id: UUID) -> Owner | None:
    """Return the identity that will own what an agent stores, or None if it is disabled."""
    statement = select(identities.c.kind, identities.c.organization_id).where(
        identities.c.id == owner_id, identities.c.disabled_at.is_(None)
    )
    row = session.execute(statement).one_or_none()
    if row is None:
        return None
    return Owner(kind=OwnerKind(row.kind), id=owner_id, organization_id=row.organization_id)


_DAEMON = (
    select(
        deployments.c.organization_id,
        deployments.c.daemon_identity_id,
        deployments.c.active_version_id,
        organizations.c.suspended_at,
        bindings_of(role_bindings.c.subject_identity_id == deployments.c.daemon_identity_id),
    )
    .join(organizations, organizations.c.id == deployments.c.organization_id)
    .join(identities, identities.c.id == deployments.c.daemon_identity_id)
    .where(deployments.c.disabled_at.is_(None), identities.c.disabled_at.is_(None))
)
