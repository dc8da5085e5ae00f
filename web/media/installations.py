"""Routes that install a Slack app in workspaces.

An administrator starts the installation, and a person of the workspace consents to it.
"""

from uuid import UUID

from flask import Response
from pydantic import Field

from shared.errors import PermissionDenied
from shared.identity.errors import OrganizationSuspended, ResourceNotFound
from shared.media.errors import AppClientMissing, InstallationRefused, NetworkNotRouted
from shared.media.network_setup import slack_installations
from shared.media.networks.webhooks import SignatureInvalid
from web.dependencies.rate_limits import RateLimited
from web.framework.administration import AdministrationRoutes
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import AnyQuery
from web.http.schemas import ResponseModel
from web.http.wire_types import Id, RequestModel, UtcTime
from web.media.push_authentication import brute_force_throttle

routes = AdministrationRoutes("networks")
INSTALLED = "The app is installed. This page can be closed.\n"


class NewInstallation(RequestModel):
    """The distribution that receives messages for the workspace."""

    target_distribution_id: Id = Field(description="The distribution that takes the workspace's messages.")


class InstallationBody(ResponseModel):
    """An installation that was started."""

    authorize_url: str = Field(
        description="The address at Slack where a person of the workspace consents; valid once."
    )
    expires_at: UtcTime


@routes.administers(
    "POST",
    "/distributions/<id:distribution_id>/networks/slack/installations",
    {200: InstallationBody},
    NetworkNotRouted,
    AppClientMissing,
    body=NewInstallation,
    summary="Get the address at which a workspace consents to the distribution's Slack app",
    description=(
        "Needs the settings `clientId` and `clientSecret`. After a person of the workspace has consented, its token "
        "is a setting of the target distribution and its messages are routed there. The address is valid once, for "
        "ten minutes, while the credential that requested it is valid and may administer both distributions."
    ),
)
def begin_installation(call: RequestContext, distribution_id: UUID) -> JsonResponse:
    body: NewInstallation = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        begun = slack_installations.begin_installation(
            session,
            call.services.settings,
            actor=actor,
            distribution_id=distribution_id,
            target_id=body.target_distribution_id,
        )
    return JsonResponse(body=InstallationBody.of(begun))


@routes.route(
    "GET",
    "/distributions/<id:distribution_id>/webhooks/slack/installed",
    summary="Exchange the code that Slack sends back for the workspace's token",
    description="Slack redirects the browser here after consent; `state` proves that an administrator started it.",
    authentication=Authentication.SIGNATURE,
    query=AnyQuery,
    responses={200: "text/plain"},
    errors=(SignatureInvalid, RateLimited, InstallationRefused),
)
def complete_installation(call: RequestContext, distribution_id: UUID) -> Response:

    parameters = call.http.args
    with brute_force_throttle(call):
        try:
            slack_installations.complete_installation(
                call.services.database,
                call.services.settings,
                distribution_id=distribution_id,
                state=parameters.get("state", ""),
                code=parameters.get("code", ""),
            )
        # Report every failure to the browser as an invalid state: this route has no credential and must
        # reveal nothing.
        except (
            PermissionDenied,
            ResourceNotFound,
            OrganizationSuspended,
            NetworkNotRouted,
            AppClientMissing,
        ) as error:
            raise SignatureInvalid from error
    return Response(INSTALLED, content_type="text/plain; charset=utf-8")
