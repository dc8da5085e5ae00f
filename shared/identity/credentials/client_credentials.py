"""Client secrets, with which a deployment obtains access tokens.

A deployment may have two live client secrets. To rotate, issue a second secret, configure it in the deployment, and
revoke the first one. Revoking a secret also revokes the access tokens that were exchanged for it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, func, insert, literal, select, update

from shared.db.database import Session
from shared.db.schema import columns_of
from shared.identity.access.authorization import Actor, authorize_for_deployment
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.authentication.credential_statements import is_live
from shared.identity.conditional_updates import mark_disabled
from shared.identity.errors import TooManyLive
from shared.identity.field_validation import require_future
from shared.identity.lookups import get_one
from shared.identity.secrets import ListedSecret, Prefix, Secret, issue
from shared.identity.tables import client_credentials, deployments
from shared.ids import new_id
from shared.pagination import Page, Position, ascending, paginate

LIVE_LIMIT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredential(ListedSecret):
    """A client secret of a deployment, without the secret itself."""

    id: UUID
    deployment_id: UUID
    client_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedClientCredential:
    """A new client secret, which is shown only once."""

    credential: ClientCredential
    secret: Secret


def issue_client_credential(
    session: Session, *, actor: Actor, deployment_id: UUID, expires_at: datetime | None = None
) -> IssuedClientCredential:
    """Issue another secret. Raises TooManyLive if two are live, and ValidationFailed for an expiry in the past."""
    organization_id = authorize_for_deployment(session, actor, Permission.CREDENTIAL_MANAGE, deployment_id)
    require_future(session, expires_at)
    # Lock the deployment, so that of two concurrent requests only one can issue the last secret below the limit.
    session.execute(select(deployments.c.id).where(deployments.c.id == deployment_id).with_for_update())
    live = select(func.count()).where(
        client_credentials.c.deployment_id == deployment_id,
        # Do not count the credential of a repository: it has no secret to rotate.
        client_credentials.c.is_of_workflows.is_(False),
        is_live(client_credentials.c),
    )
    if session.execute(live).scalar_one() >= LIVE_LIMIT:
        raise TooManyLive
    issued = insert_client_credential(session, deployment_id=deployment_id, expires_at=expires_at)
    _record(session, actor, "client_credential.issued", issued.credential, organization_id)
    return issued


def get_client_credential(session: Session, *, actor: Actor, credential_id: UUID) -> ClientCredential:
    """Return a client secret without the secret itself. Raises ResourceNotFound, PermissionDenied."""
    credential = _get(session, credential_id)
    authorize_for_deployment(session, actor, Permission.CREDENTIAL_MANAGE, credential.deployment_id)
    return credential


def list_client_credentials(
    session: Session, *, actor: Actor, deployment_id: UUID, **page: Unpack[Position]
) -> Page[ClientCredential]:
    """Return a page of a deployment's client secrets, revoked ones included, without the secrets themselves."""
    authorize_for_deployment(session, actor, Permission.CREDENTIAL_MANAGE, deployment_id)
    of_deployment = client_credentials.c.deployment_id == deployment_id
    statement = _CREDENTIALS.where(of_deployment, client_credentials.c.is_of_workflows.is_(False))
    return paginate(session, statement, ascending(client_credentials.c.id), _credential, **page)


def revoke_client_credential(session: Session, *, actor: Actor, credential_id: UUID) -> ClientCredential:
    """Revoke a client secret and all tokens exchanged for it. Revoking the secret again changes nothing."""
    credential = _get(session, credential_id)
    organization_id = authorize_for_deployment(
        session, actor, Permission.CREDENTIAL_MANAGE, credential.deployment_id
    )
    if mark_disabled(session, client_credentials, client_credentials.c.revoked_at, credential_id):
        _record(session, actor, "client_credential.revoked", credential, organization_id)
    return _get(session, credential_id)


def extend_client_credential(session: Session, *, credential_id: UUID, life: timedelta) -> None:
    """Set the expiry of an unrevoked secret to `life` after now. The caller authorizes."""
    unrevoked = (client_credentials.c.id == credential_id, client_credentials.c.revoked_at.is_(None))
    session.execute(
        update(client_credentials).where(*unrevoked).values(expires_at=func.now() + literal(life))
    )


def insert_client_credential(
    session: Session, *, deployment_id: UUID, expires_at: datetime | None
) -> IssuedClientCredential:
    """Insert a new client secret. The caller authorizes."""
    secret = issue(Prefix.CLIENT_SECRET)
    credential_id = new_id()
    session.execute(
        insert(client_credentials).values(
            id=credential_id,
            deployment_id=deployment_id,
            secret_hash=secret.hash,
            last4=secret.last4,
            expires_at=expires_at,
        )
    )
    return IssuedClientCredential(credential=_get(session, credential_id), secret=secret)


def _get(session: Session, credential_id: UUID) -> ClientCredential:
    return get_one(session, _CREDENTIALS.where(client_credentials.c.id == credential_id), _credential)


def _record(
    session: Session, actor: Actor, action: str, credential: ClientCredential, organization_id: UUID
) -> None:
    record(
        session,
        actor,
        action,
        credential.id,
        organization_id=organization_id,
        deployment_id=credential.deployment_id,
    )


def _credential(row: Row[Any]) -> ClientCredential:
    return ClientCredential(**row._asdict())


_CREDENTIALS = select(*columns_of(ClientCredential, client_credentials, deployments)).join(
    deployments, deployments.c.id == client_credentials.c.deployment_id
)
