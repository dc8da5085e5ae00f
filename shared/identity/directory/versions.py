"""Versions of a deployment. New access tokens name the active version; revoking a version revokes all its tokens.

A new version becomes the active one. An earlier version can be activated again unless it was revoked.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, func, insert, select, update

from shared.db.database import Session
from shared.identity.access.authorization import Actor, authorize_for_deployment
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.conditional_updates import mark_disabled, set_values
from shared.identity.errors import VersionRevoked
from shared.identity.field_validation import require_name
from shared.identity.lookups import get_one
from shared.identity.tables import deployments, versions
from shared.ids import new_id
from shared.pagination import Page, Position, ascending, paginate


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One deployed version; `label` is the deployer's own name for it, such as a commit."""

    id: UUID
    deployment_id: UUID
    number: int
    label: str | None
    revoked_at: datetime | None
    created_at: datetime


def deploy_version(
    session: Session, *, actor: Actor, deployment_id: UUID, label: str | None = None
) -> Version:
    """Insert a new version and activate it. Raises PermissionDenied, ResourceNotFound, ValidationFailed."""
    organization_id = authorize_for_deployment(session, actor, Permission.DEPLOYMENT_MANAGE, deployment_id)
    version = insert_version(session, deployment_id=deployment_id, label=label)
    _record(session, actor, "version.deployed", version, organization_id)
    return version


def get_version(session: Session, *, actor: Actor, version_id: UUID) -> Version:
    """Return a version. Raises ResourceNotFound, PermissionDenied."""
    version = _get(session, version_id)
    authorize_for_deployment(session, actor, Permission.ORGANIZATION_READ, version.deployment_id)
    return version


def list_versions(
    session: Session, *, actor: Actor, deployment_id: UUID, **page: Unpack[Position]
) -> Page[Version]:
    """Return a page of a deployment's versions, oldest first."""
    authorize_for_deployment(session, actor, Permission.ORGANIZATION_READ, deployment_id)
    statement = select(versions).where(versions.c.deployment_id == deployment_id)
    return paginate(session, statement, ascending(versions.c.id), _version, **page)


def activate_version(session: Session, *, actor: Actor, version_id: UUID) -> Version:
    """Activate an earlier version. Raises VersionRevoked, ResourceNotFound, PermissionDenied."""
    version = _get(session, version_id)
    organization_id = authorize_for_deployment(
        session, actor, Permission.DEPLOYMENT_MANAGE, version.deployment_id
    )
    _lock(session, version.deployment_id)
    # Read the version again under the lock: a concurrent request may have revoked it meanwhile.
    version = _get(session, version_id)
    if version.revoked_at is not None:
        raise VersionRevoked
    if _activate(session, version):
        _record(session, actor, "version.activated", version, organization_id)
    return version


def revoke_version(session: Session, *, actor: Actor, version_id: UUID) -> Version:
    """Revoke a version and all its tokens. If it was active, the deployment then has no active version."""
    version = _get(session, version_id)
    organization_id = authorize_for_deployment(
        session, actor, Permission.DEPLOYMENT_MANAGE, version.deployment_id
    )
    _lock(session, version.deployment_id)
    if mark_disabled(session, versions, versions.c.revoked_at, version_id):
        session.execute(
            update(deployments)
            .where(deployments.c.active_version_id == version_id)
            .values(active_version_id=None)
        )
        _record(session, actor, "version.revoked", version, organization_id)
    return _get(session, version_id)


def insert_version(session: Session, *, deployment_id: UUID, label: str | None) -> Version:
    """Insert and activate the next version. The caller authorizes."""
    # The lock makes the numbers of concurrent inserts unique and without gaps.
    _lock(session, deployment_id)
    last = select(func.max(versions.c.number)).where(versions.c.deployment_id == deployment_id)
    number = (session.execute(last).scalar() or 0) + 1
    values = {
        "id": new_id(),
        "deployment_id": deployment_id,
        "number": number,
        "label": None if label is None else require_name(label, field="label"),
    }
    version = _version(session.execute(insert(versions).values(values).returning(versions)).one())
    _activate(session, version)
    return version


def _activate(session: Session, version: Version) -> bool:
    """Activate a version. Return False if this version was already active."""
    return set_values(session, deployments, version.deployment_id, {"active_version_id": version.id})


def _lock(session: Session, deployment_id: UUID) -> None:
    session.execute(select(deployments.c.id).where(deployments.c.id == deployment_id).with_for_update())


def _get(session: Session, version_id: UUID) -> Version:
    return get_one(session, select(versions).where(versions.c.id == version_id), _version)


def _record(session: Session, actor: Actor, action: str, version: Version, organization_id: UUID) -> None:
    record(
        session,
        actor,
        action,
        version.id,
        organization_id=organization_id,
        deployment_id=version.deployment_id,
    )


def _version(row: Row[Any]) -> Version:
    return Version(**row._asdict())
