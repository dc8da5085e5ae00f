"""Create organizations, users with keys, deployments, distributions and tokens for tests.

All of it uses the domain's own operations, as the operator of the installation.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID, uuid4

from cryptography.fernet import Fernet
from pydantic import SecretStr

from shared.config.settings import Settings
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR, Actor
from shared.identity.access.claims import ReportedCaller
from shared.identity.access.roles import Role, ScopeKind
from shared.identity.authentication.authenticator import Authenticator
from shared.identity.credentials.api_keys import issue_api_key
from shared.identity.directory.deployments import CreatedDeployment, DeploymentKind, create_deployment
from shared.identity.directory.distributions import CreatedDistribution, create_distribution
from shared.identity.directory.identities import Identity, create_principal_identity
from shared.identity.directory.memberships import add_member
from shared.identity.directory.organizations import Organization, create_organization
from shared.identity.directory.role_bindings import bind_identity_role, bind_user_role
from shared.identity.directory.users import create_operator, create_user
from shared.identity.token_endpoint.attribution_minting import mint_attribution
from shared.identity.token_endpoint.token_exchange import exchange
from shared.identity.tokens.signing_keys import SigningKeys

_ENCRYPTION_KEY = Fernet.generate_key().decode()


def make_settings(**changes: object) -> Settings:
    """Return settings for identity; by default `live_row_cache_seconds=0`, so that changes are visible at once.

    Equal changes return the same immutable object, because creating one takes three milliseconds.
    """
    try:
        return _make_once(**changes)
    except TypeError:  # A list or a mapping among the changes cannot be a cache key.
        return _make(changes)


@functools.cache
def _make_once(**changes: object) -> Settings:
    return _make(changes)


def _make(changes: Mapping[str, object]) -> Settings:
    values: dict[str, object] = {
        "database_url": "postgresql://unused/unused",
        "redis_url": "redis://unused/0",
        "blob_store": "file:///unused",
        "base_url": "https://qm.example",
        "encryption_keys": (SecretStr(_ENCRYPTION_KEY),),
        "live_row_cache_seconds": 0,
    }
    return Settings.model_validate({**values, **changes})


@dataclass(frozen=True, kw_only=True)
class Person:
    """A user and the secret of one of their keys."""

    user_id: UUID
    email: str
    api_key: str
    api_key_id: UUID | None = None

    @property
    def authorization(self) -> str:
        return f"Bearer {self.api_key}"


class IdentityFactory:
    """Creates rows in one database, and their credentials."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database = database
        self.settings = settings
        self.keys = SigningKeys(database, settings)

    def authenticator(self) -> Authenticator:
        """Return a new authenticator, as another process would have."""
        return Authenticator(self.database, self.settings, SigningKeys(self.database, self.settings))

    def organization(self, name: str = "Acme") -> Organization:
        """Create an organization with an owner."""
        with self.database.transaction() as session:
            owner = create_user(session, actor=OPERATOR, email=_email())
            return create_organization(session, actor=OPERATOR, name=name, owner_id=owner.id)

    def person(self, organization_id: UUID, role: Role = Role.MEMBER, *, bound: bool = False) -> Person:
        """Create a member with an API key; `bound` ties the key to the organization."""
        email = _email()
        with self.database.transaction() as session:
            member = add_member(
                session, actor=OPERATOR, organization_id=organization_id, email=email, role=role
            )
            issued = issue_api_key(
                session,
                actor=OPERATOR,
                user_id=member.user_id,
                organization_id=organization_id if bound else None,
                name="test",
            )
        return Person(
            user_id=member.user_id, email=email, api_key=issued.secret.value, api_key_id=issued.key.id
        )

    def operator(self) -> Person:
        """Create an operator without an organization."""
        email = _email()
        with self.database.transaction() as session:
            user = create_operator(session, actor=OPERATOR, email=email)
            issued = issue_api_key(
                session, actor=OPERATOR, user_id=user.id, organization_id=None, name="test"
            )
        return Person(user_id=user.id, email=email, api_key=issued.secret.value, api_key_id=issued.key.id)

    def actor(self, person: Person) -> Actor:
        """Return the person as an administrative actor."""
        authenticator = self.authenticator()
        caller = authenticator.resolve(authenticator.authenticate(person.authorization), None)
        return Actor(caller=caller, request_id="test-request")

    def deployment(self, organization_id: UUID, name: str = "agent") -> CreatedDeployment:
        """Create a remote deployment with its daemon, version and client secret."""
        with self.database.transaction() as session:
            return create_deployment(
                session,
                actor=OPERATOR,
                organization_id=organization_id,
                kind=DeploymentKind.REMOTE,
                name=name,
            )

    def principal(self, organization_id: UUID, name: str = "mailbox") -> Identity:
        """Create a receiving identity."""
        with self.database.transaction() as session:
            return create_principal_identity(
                session, actor=OPERATOR, organization_id=organization_id, name=name
            )

    def distribution(
        self, organization_id: UUID, *, principal_id: UUID, deployment_id: UUID
    ) -> CreatedDistribution:
        """Create a distribution from a network to a deployment."""
        with self.database.transaction() as session:
            return create_distribution(
                session,
                self.settings,
                actor=OPERATOR,
                organization_id=organization_id,
                name="distribution",
                networks=["slack"],
                principal_identity_id=principal_id,
                deployment_id=deployment_id,
            )

    def bind_identity(
        self, organization_id: UUID, identity_id: UUID, role: Role, *, over: UUID | None = None
    ) -> None:
        """Grant an identity a role over an owner, or over the whole organization."""
        with self.database.transaction() as session:
            bind_identity_role(
                session,
                actor=OPERATOR,
                organization_id=organization_id,
                identity_id=identity_id,
                role=role,
                scope_kind=ScopeKind.IDENTITY if over else ScopeKind.ORGANIZATION,
                scope_id=over or organization_id,
            )

    def bind_user(self, organization_id: UUID, user_id: UUID, role: Role, *, over: UUID) -> None:
        """Grant a member a role over an owner."""
        with self.database.transaction() as session:
            bind_user_role(
                session,
                actor=OPERATOR,
                organization_id=organization_id,
                user_id=user_id,
                role=role,
                owner_id=over,
            )

    def access_token(self, deployment: CreatedDeployment, scope: str | None = None) -> str:
        """Return an access token exchanged for the deployment's secret."""
        token = exchange(
            self.database,
            self.settings,
            self.keys,
            client_id=str(deployment.deployment.client_id),
            client_secret=deployment.credential.secret.value,
            scope=scope,
        )
        return token.value

    def authorization(self, deployment: CreatedDeployment, scope: str | None = None) -> str:
        """Return the `Authorization` header of a deployment."""
        return f"Bearer {self.access_token(deployment, scope)}"

    def attribution(self, distribution: CreatedDistribution) -> str:
        """Return the `Service-Usage-Attribution` header that the distribution's router forwards."""
        credential = self.authenticator().authenticate(f"Bearer {distribution.token.value}")
        minted = mint_attribution(
            self.keys,
            self.settings,
            credential,
            message_id="m-1",
            channel="slack",
            reported_caller=ReportedCaller(id="U123", display="Ada"),
        )
        return minted.value


def _email() -> str:
    return f"{uuid4().hex}@example.org"
