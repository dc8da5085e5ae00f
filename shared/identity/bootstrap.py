"""Set up an empty installation: create an operator, an organization, and each resource that a first call needs.

The bootstrap runs at every start and does nothing if an organization exists.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import exists, select

from shared.config.settings import Settings
from shared.db.advisory_locks import AdvisoryLock, take
from shared.db.database import Database, Session
from shared.identity.access.authorization import OPERATOR
from shared.identity.credentials.api_keys import FIRST_KEY_NAME, issue_api_key
from shared.identity.directory.deployments import DeploymentKind, create_deployment
from shared.identity.directory.distributions import create_distribution
from shared.identity.directory.identities import create_principal_identity
from shared.identity.directory.organizations import create_organization
from shared.identity.directory.users import create_operator
from shared.identity.tables import organizations
from shared.identity.tokens.key_rotation import ensure_keys

FIRST_OWNER_EMAIL = "owner@localhost"
FIRST_NAME = "Default"
FIRST_NETWORKS = ("webhook",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The ids and secrets of a new installation, which its operator can see only once.

    The database stores no secret in clear text.
    """

    base_url: str
    organization_id: UUID
    owner_api_key: str = field(repr=False)
    deployment_id: UUID
    client_id: UUID
    client_secret: str = field(repr=False)
    daemon_identity_id: UUID
    distribution_id: UUID
    distribution_token: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    principal_identity_id: UUID

    def document(self) -> dict[str, Any]:
        """Return the content of the credentials file, as JSON members."""
        return {
            "baseUrl": self.base_url,
            "organizationId": str(self.organization_id),
            "ownerApiKey": self.owner_api_key,
            "deployment": {
                "id": str(self.deployment_id),
                "clientId": str(self.client_id),
                "clientSecret": self.client_secret,
                "daemonIdentityId": str(self.daemon_identity_id),
            },
            "distribution": {
                "id": str(self.distribution_id),
                "token": self.distribution_token,
                "webhookSecret": self.webhook_secret,
                "principalIdentityId": str(self.principal_identity_id),
            },
        }


def bootstrap(
    database: Database,
    settings: Settings,
    *,
    save_credentials: Callable[[Credentials], None] | None = None,
    on_created: Callable[[Session, UUID], None] | None = None,
) -> Credentials | None:
    """Set up an empty installation and return its credentials, or None if an organization already exists.

    `save_credentials` must store the credentials durably. It is called before the commit, and an exception that it
    raises rolls the setup back. `on_created` is called in the same transaction with the organization's id, so that
    other domains can add their rows.
    """
    ensure_keys(database, settings)
    with database.transaction() as session:
        # Processes that start at the same time wait here; all but the first then find an organization.
        take(session, AdvisoryLock.BOOTSTRAP)
        if session.execute(select(exists().select_from(organizations))).scalar():
            return None
        credentials = _set_up(session, settings)
        if on_created is not None:
            on_created(session, credentials.organization_id)
        # Save the credentials last, so that an error above leaves no file with credentials that do not exist.
        if save_credentials is not None:
            save_credentials(credentials)
    return credentials


def _set_up(session: Session, settings: Settings) -> Credentials:
    owner = create_operator(session, actor=OPERATOR, email=FIRST_OWNER_EMAIL)
    organization = create_organization(session, actor=OPERATOR, name=FIRST_NAME, owner_id=owner.id)
    key = issue_api_key(session, actor=OPERATOR, user_id=owner.id, organization_id=None, name=FIRST_KEY_NAME)
    created = create_deployment(
        session, actor=OPERATOR, organization_id=organization.id, kind=DeploymentKind.REMOTE, name=FIRST_NAME
    )
    principal = create_principal_identity(
        session, actor=OPERATOR, organization_id=organization.id, name=FIRST_NAME
    )
    distribution = create_distribution(
        session,
        settings,
        actor=OPERATOR,
        organization_id=organization.id,
        name=FIRST_NAME,
        networks=FIRST_NETWORKS,
        principal_identity_id=principal.id,
        deployment_id=created.deployment.id,
    )
    return Credentials(
        base_url=settings.base_url,
        organization_id=organization.id,
        owner_api_key=key.secret.value,
        deployment_id=created.deployment.id,
        client_id=created.deployment.client_id,
        client_secret=created.credential.secret.value,
        daemon_identity_id=created.deployment.daemon_identity_id,
        distribution_id=distribution.distribution.id,
        distribution_token=distribution.token.value,
        webhook_secret=distribution.webhook_secret.value,
        principal_identity_id=principal.id,
    )
