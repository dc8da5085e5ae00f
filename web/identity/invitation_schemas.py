"""The JSON of invitations."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from shared.identity.access.roles import Role
from shared.identity.directory.invitations import DEFAULT_DAYS, MAX_DAYS
from web.http.schemas import PageResponse, ResponseModel
from web.http.wire_types import CamelModel, Id, RequestModel, Text, UtcTime
from web.identity.schemas import Email, MemberBody, MemberRole


class InvitationBody(ResponseModel):
    """An invitation, without its token."""

    id: Id
    organization_id: Id
    email: str | None = Field(description="The invited address, or null if the invitation names a user.")
    user_id: Id | None = Field(description="The invited user, or null if the invitation names an address.")
    role: Role
    last4: str = Field(description="The token's last characters.")
    expires_at: UtcTime
    accepted_at: UtcTime | None
    accepted_by: Id | None
    revoked_at: UtcTime | None
    created_at: UtcTime


class IssuedInvitation(InvitationBody):
    """A new invitation with its token, returned only once."""

    token: str


class InvitationPage(PageResponse):
    """Invitations, newest first."""

    invitations: Sequence[InvitationBody]


class NewInvitation(RequestModel):
    """The address or the user to invite, with the role."""

    # Exactly one of the two fields is required. The domain checks this, because the rule applies to commands
    # too.
    email: Email | None = None
    user_id: Id | None = None
    role: MemberRole
    expires_at: UtcTime | None = Field(
        default=None,
        description=f"When it expires: after {DEFAULT_DAYS} days by default, {MAX_DAYS} at most.",
    )


class AcceptedInvitation(RequestModel):
    """The token of an invitation."""

    # Longer than any token, and short enough that hashing a wrong token costs little.
    token: Annotated[str, Text(minimum=1, maximum=200)]


class RegistrationBody(CamelModel):
    """A new account: its membership, and its first API key, returned only once."""

    member: MemberBody
    api_key: str
    api_key_id: Id
