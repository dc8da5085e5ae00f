"""The JSON of organizations, users, members, API keys and audit events."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic.alias_generators import to_camel

from shared.identity.access.roles import Role
from web.http.schemas import PageQuery, PageResponse, ResponseModel
from web.http.wire_types import Id, Name, RequestModel, Text, UtcTime


def _camel_keys(details: Mapping[str, str | None]) -> dict[str, str | None]:
    return {to_camel(name): value for name, value in details.items()}


# Details are stored with Python's names, so convert the keys to camelCase.
Details = Annotated[Mapping[str, str | None], BeforeValidator(_camel_keys)]
# 64 characters before the `@` (RFC 5321), the `@`, and 253 characters of a DNS name.
MAX_EMAIL_CHARACTERS = 318
# This pattern is only in the OpenAPI document, for generators and fuzzers. The domain checks addresses,
# including those of commands.
EMAIL_PATTERN = r"^[^\s@\u0000-\u001f\u007f-\u009f]{1,64}@[^\s@\u0000-\u001f\u007f-\u009f]{1,253}$"
# ProjectAgent is left out: it is a role of agents, and no membership has it.
MemberRole = Literal["Member", "WorkspaceAdmin", "WorkspaceOwner"]
Email = Annotated[
    str,
    Text(minimum=3, maximum=MAX_EMAIL_CHARACTERS),
    Field(json_schema_extra={"pattern": EMAIL_PATTERN}),
]


class OrganizationBody(ResponseModel):
    """An organization. While `suspendedAt` is set, all work in its name and at its cost is refused."""

    id: Id
    name: str
    suspended_at: UtcTime | None
    created_at: UtcTime


class OrganizationPage(PageResponse):
    """Organizations, oldest first."""

    organizations: Sequence[OrganizationBody]


class NewOrganization(RequestModel):
    """An organization to create."""

    name: Name
    owner_id: Id = Field(description="The user who becomes its first owner.")


class ChangedOrganization(RequestModel):
    """The changed fields of an organization."""

    name: Name


class UserBody(ResponseModel):
    """A user."""

    id: Id
    email: str
    is_operator: bool = Field(description="Whether they operate this installation.")
    active_organization_id: Id | None = Field(
        description="The organization in which keys act that are bound to none."
    )
    disabled_at: UtcTime | None
    created_at: UtcTime


class UserPage(PageResponse):
    """Users, oldest first."""

    users: Sequence[UserBody]


class NewUser(RequestModel):
    """A user to create."""

    email: Email


class ActiveOrganization(RequestModel):
    """The organization to select."""

    organization_id: Id


class MemberBody(ResponseModel):
    """A user's membership of an organization."""

    organization_id: Id
    user_id: Id
    email: str
    role: Role
    created_at: UtcTime


class MemberPage(PageResponse):
    """Members, oldest user first."""

    members: Sequence[MemberBody]


class NewMember(RequestModel):
    """A member to add. A user is created for an address without one."""

    email: Email
    role: MemberRole


class ChangedMember(RequestModel):
    """A member's new role."""

    role: MemberRole


class ApiKeyBody(ResponseModel):
    """An API key, without its secret."""

    id: Id
    user_id: Id
    organization_id: Id | None = Field(
        description="The organization that it is bound to; null: the user's active one."
    )
    name: str
    last4: str = Field(description="The secret's last four characters.")
    expires_at: UtcTime | None
    revoked_at: UtcTime | None
    last_used_at: UtcTime | None
    created_at: UtcTime


class IssuedApiKey(ApiKeyBody):
    """A new API key with its secret."""

    api_key: str = Field(description="The secret, returned only once.")


class ApiKeyPage(PageResponse):
    """API keys, oldest first."""

    api_keys: Sequence[ApiKeyBody]


class NewApiKey(RequestModel):
    """An API key to issue."""

    name: Name
    user_id: Id | None = Field(default=None, description="The user of the key; the caller by default.")
    organization_id: Id | None = Field(
        default=None, description="The organization to bind the key to; required for the key of another user."
    )
    expires_at: UtcTime | None = Field(default=None, description="When it expires; never by default.")


class ApiKeyQuery(PageQuery):
    """The parameters of a listing of keys."""

    user_id: Id | None = Field(default=None, description="The user of the keys; the caller by default.")


class AuditEventBody(ResponseModel):
    """One administrative change: the actor, the action and the resource."""

    id: Id
    organization_id: Id | None
    actor_kind: str
    actor_id: Id
    action: str
    resource_kind: str
    resource_id: str
    details: Details
    request_id: str | None
    credential_id: Id | None
    client_address: str | None
    at: UtcTime


class AuditEventPage(PageResponse):
    """Audit events, newest first."""

    audit_events: Sequence[AuditEventBody]
