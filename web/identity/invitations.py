"""Routes of invitations. A person becomes a member, and gets an API key, only by accepting an invitation."""

from uuid import UUID

from shared.errors import DomainError, PermissionDenied, ServiceUnavailable
from shared.identity.access.roles import Role
from shared.identity.directory import invitation_acceptance, invitations
from shared.identity.errors import (
    AlreadyExists,
    GrantExceedsGranter,
    InvitationEnded,
    OrganizationSuspended,
    ResourceNotFound,
    TooManyLive,
)
from web.dependencies.rate_limits import RateLimited
from web.framework.administration import NO_STORE, ORGANIZATION, AdministrationRoutes, created
from web.framework.authentication import Authentication, limit_failed_authentication
from web.framework.calls import JsonResponse, RequestContext, request_id
from web.framework.routes import Routes
from web.identity import invitation_schemas as schemas
from web.identity.schemas import MemberBody

routes = AdministrationRoutes("invitations")
# A person who registers has no credential yet, so this route is not administrative.
public_routes = Routes("invitations")

_REFUSED: tuple[type[DomainError], ...] = (
    ResourceNotFound,
    InvitationEnded,
    AlreadyExists,
    ServiceUnavailable,
)


@routes.creates(
    "/organizations/<id:organization_id>/invitations",
    schemas.NewInvitation,
    schemas.IssuedInvitation,
    AlreadyExists,
    GrantExceedsGranter,
    TooManyLive,
    summary="Create an invitation to an organization, with a role no higher than the caller's",
    description="The response contains the token, returned only once. Give it to the person: no mail is sent.",
)
def create_invitation(call: RequestContext, organization_id: UUID) -> JsonResponse:
    body: schemas.NewInvitation = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        issued = invitations.invite_member(
            session,
            actor=actor,
            organization_id=organization_id,
            role=Role(body.role),
            email=body.email,
            user_id=body.user_id,
            expires_at=body.expires_at,
        )
    shown = schemas.IssuedInvitation.with_secret(issued.invitation, token=issued.token.value)
    return created(call, shown, f"/invitations/{issued.invitation.id}")


routes.lists(
    f"{ORGANIZATION}/invitations",
    invitations.list_invitations,
    schemas.InvitationPage,
    summary="List the invitations of an organization, newest first",
)
invitation = routes.resource("/invitations/<id:invitation_id>", schemas.InvitationBody)
invitation.reads(
    "read_invitation", invitations.get_invitation, summary="Get an invitation, without its token"
)
invitation.acts("revoke", invitations.revoke_invitation, summary="Revoke an invitation before it is accepted")


@routes.route(
    "POST",
    "/admin/invitations/accept",
    summary="Accept an invitation as the user of the API key",
    description=(
        "The key must be bound to no organization, and the invitation must name its user. A first "
        "organization becomes the active one; further ones are selected with `PUT /admin/me/"
        "active-organization`."
    ),
    authentication=Authentication.CALLER,
    administers=True,
    body=schemas.AcceptedInvitation,
    responses={200: MemberBody},
    errors=(PermissionDenied, OrganizationSuspended, *_REFUSED),
)
def accept_invitation(call: RequestContext) -> JsonResponse:
    body: schemas.AcceptedInvitation = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        member = invitation_acceptance.accept_invitation(session, actor=actor, token=body.token)
    return JsonResponse(body=MemberBody.of(member))


@public_routes.route(
    "POST",
    "/invitations/register",
    summary="Create an account by accepting an invitation to an address without one",
    description=(
        "The response contains the account's first API key, returned only once. The user of an existing "
        "account accepts with its key instead."
    ),
    authentication=Authentication.PUBLIC,
    body=schemas.AcceptedInvitation,
    responses={201: schemas.RegistrationBody},
    errors=(OrganizationSuspended, RateLimited, *_REFUSED),
)
def register_invited(call: RequestContext) -> JsonResponse:
    body: schemas.AcceptedInvitation = call.read_body()
    try:
        with call.services.database.transaction() as session:
            made = invitation_acceptance.register_invited(session, token=body.token, request_id=request_id())
    except ResourceNotFound:
        # Count each wrong token against the client's address, so that tokens cannot be guessed at full speed.
        limit_failed_authentication(call.http, call.services)
        raise
    shown = schemas.RegistrationBody(
        member=MemberBody.of(made.membership), api_key=made.key.secret.value, api_key_id=made.key.key.id
    )
    return JsonResponse(body=shown, status=201, headers=NO_STORE)
