"""The JSON of identities, role bindings, deployments, their versions and credentials, and signing keys."""

from collections.abc import Sequence
from typing import Literal, Self
from uuid import UUID

from pydantic import ConfigDict, Field, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from shared.identity.access.callers import OwnerKind
from shared.identity.access.roles import Role, ScopeKind
from shared.identity.directory.deployments import DeploymentKind
from shared.identity.tokens.key_rotation import KeyPurpose, KeyState
from web.http.schemas import PageResponse, ResponseModel
from web.http.wire_types import CamelModel, Id, JsonCount, Name, RequestModel, UtcTime


class IdentityBody(ResponseModel):
    """An identity, which owns files."""

    id: Id
    organization_id: Id
    kind: OwnerKind
    name: str
    disabled_at: UtcTime | None
    created_at: UtcTime


class IdentityPage(PageResponse):
    """Identities, oldest first."""

    identities: Sequence[IdentityBody]


class NewPrincipalIdentity(RequestModel):
    """A Principal Identity to create. Daemon Identities are created with their deployments."""

    name: Name


class RoleBindingBody(ResponseModel):
    """A role that an identity, or a user, holds over a scope."""

    id: Id
    organization_id: Id
    subject_identity_id: Id | None
    subject_user_id: Id | None
    role: Role
    scope_kind: ScopeKind
    scope_id: Id
    created_at: UtcTime


class RoleBindingPage(PageResponse):
    """Role bindings, oldest first."""

    role_bindings: Sequence[RoleBindingBody]


# The rule of the validator below as a JSON schema: clients that are generated from the document then check it
# before sending.
_ONE_SUBJECT: JsonDict = {
    "anyOf": [
        {
            "required": ["subjectIdentityId"],
            "properties": {"subjectIdentityId": {"type": "string"}, "subjectUserId": {"type": "null"}},
        },
        {
            "required": ["subjectUserId"],
            "properties": {
                "subjectUserId": {"type": "string"},
                "subjectIdentityId": {"type": "null"},
                "scopeKind": {"const": "Identity"},
            },
        },
    ]
}


class NewRoleBinding(RequestModel):
    """A role to bind to one subject; a user's role in the organization itself is the membership's."""

    model_config = ConfigDict(json_schema_extra=_ONE_SUBJECT)

    subject_identity_id: Id | None = None
    subject_user_id: Id | None = None
    role: Literal["ProjectAgent", "Member", "WorkspaceAdmin", "WorkspaceOwner"]
    scope_kind: Literal["Organization", "Identity"]
    scope_id: Id = Field(description="The organization, or the identity that owns the files.")

    @model_validator(mode="after")
    def _one_subject(self) -> Self:
        if (self.subject_identity_id is None) == (self.subject_user_id is None):
            raise PydanticCustomError("subject", "send subjectIdentityId or subjectUserId, one of them")
        if self.subject_user_id is not None and self.scope_kind != "Identity":
            raise PydanticCustomError(
                "scope", "a user's role over an organization is the membership's; scopeKind must be Identity"
            )
        return self

    @property
    def user_id(self) -> UUID:
        """The user's id, if the subject is a user."""
        if self.subject_user_id is None:
            raise RuntimeError("the subject is an identity")
        return self.subject_user_id


class DeploymentBody(ResponseModel):
    """A deployment with the client id that it authenticates with."""

    id: Id
    organization_id: Id
    kind: DeploymentKind
    name: str
    client_id: Id
    daemon_identity_id: Id
    active_version_id: Id | None
    disabled_at: UtcTime | None
    created_at: UtcTime


class NewDaemon(RequestModel):
    """The Daemon Identity of a deployment, its service account."""

    daemon_identity_id: Id | None = Field(
        default=None,
        description="A Daemon Identity of the organization that serves no other deployment; a new one if absent.",
    )


class CreatedDeployment(DeploymentBody):
    """A new deployment with its client secret."""

    client_credential_id: Id
    client_secret: str = Field(description="The secret, returned only once.")


class DeploymentPage(PageResponse):
    """Deployments, oldest first."""

    deployments: Sequence[DeploymentBody]


class NewDeployment(RequestModel):
    """A deployment to create."""

    name: Name
    kind: Literal["Remote", "GitHub"] = "Remote"
    label: Name | None = Field(default=None, description="A name for its first version, such as a commit.")


class NewRepository(RequestModel):
    """The GitHub repository of a deployment; its workflows get access tokens."""

    repository: str = Field(description="`owner/name` on GitHub.")
    ref: str | None = Field(
        default=None,
        description="A branch, or a whole ref; any branch or tag by default, never a pull request.",
    )
    environment: str | None = Field(default=None, description="The environment that a job must run in.")
    repository_id: str | None = Field(
        default=None, description="GitHub's number of the repository; by default that of the first token."
    )
    repository_owner_id: str | None = Field(
        default=None, description="GitHub's number of its owner; by default that of the first token."
    )


class RepositoryBody(ResponseModel):
    """The repository of a GitHub deployment."""

    deployment_id: Id
    repository: str
    ref: str | None
    environment: str | None
    repository_id: str | None = Field(description="GitHub's number, null until the first token is accepted.")
    repository_owner_id: str | None
    updated_at: UtcTime
    created_at: UtcTime


class DeployedVersionBody(ResponseModel):
    """A deployed version."""

    id: Id
    deployment_id: Id
    number: JsonCount
    label: str | None
    revoked_at: UtcTime | None
    created_at: UtcTime


class DeployedVersionPage(PageResponse):
    """Versions, oldest first."""

    versions: Sequence[DeployedVersionBody]


class NewVersion(RequestModel):
    """A version that was deployed."""

    label: Name | None = Field(default=None, description="Its name, such as a commit.")


class ClientCredentialBody(ResponseModel):
    """A client secret, without the secret."""

    id: Id
    deployment_id: Id
    client_id: Id
    last4: str = Field(description="The secret's last four characters.")
    expires_at: UtcTime | None
    revoked_at: UtcTime | None
    last_used_at: UtcTime | None
    created_at: UtcTime


class IssuedClientCredential(ClientCredentialBody):
    """A new client secret."""

    client_secret: str = Field(description="The secret, returned only once.")


class ClientCredentialPage(PageResponse):
    """Client secrets, oldest first."""

    client_credentials: Sequence[ClientCredentialBody]


class NewClientCredential(RequestModel):
    """A client secret to issue."""

    expires_at: UtcTime | None = Field(default=None, description="When it expires; never by default.")


class SigningKeyBody(ResponseModel):
    """A signing key, without the key."""

    kid: str
    purpose: KeyPurpose
    state: KeyState
    created_at: UtcTime
    activated_at: UtcTime | None
    retired_at: UtcTime | None


class SigningKeyList(CamelModel):
    """All signing keys."""

    signing_keys: Sequence[SigningKeyBody]
