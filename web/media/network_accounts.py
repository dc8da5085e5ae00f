"""Routes that map an account of a network (a workspace, a number) to the distribution that receives its messages."""

from collections.abc import Sequence
from uuid import UUID

from pydantic import Field

from shared.media.errors import NetworkNotRouted
from shared.media.network_setup import network_accounts
from shared.media.networks.base import Network
from web.framework.administration import AdministrationRoutes
from web.framework.calls import JsonResponse, RequestContext
from web.http.schemas import PageResponse, ResponseModel
from web.http.wire_types import Id, RequestModel, UtcTime

PATH = "/distributions/<id:distribution_id>/networks/<network:network>/accounts"
routes = AdministrationRoutes("networks")


class NewNetworkAccount(RequestModel):
    """The distribution that receives for an account."""

    target_distribution_id: Id = Field(description="The distribution that receives the account's messages.")


class NetworkAccountBody(ResponseModel):
    """An account of a network, and the distribution that receives for it."""

    distribution_id: Id = Field(description="The distribution of the webhook address that the network calls.")
    network: str
    account: str
    target_distribution_id: Id
    changed_at: UtcTime


class NetworkAccountPage(PageResponse):
    """Accounts, newest first."""

    accounts: Sequence[NetworkAccountBody]


@routes.changes(
    "PUT",
    f"{PATH}/<account>",
    NewNetworkAccount,
    NetworkAccountBody,
    NetworkNotRouted,
    summary="Replace the distribution that receives for an account of a network",
    description=(
        "For an app with one webhook address and many accounts. `account` is Slack's `team_id`, WhatsApp's "
        "`phone_number_id`, Twilio's receiving number or Discord's `guild_id`. Media is fetched with the settings of "
        "the target distribution."
    ),
)
def put_network_account(
    call: RequestContext, distribution_id: UUID, network: Network, account: str
) -> JsonResponse:
    body: NewNetworkAccount = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        routed = network_accounts.put_network_account(
            session,
            actor=actor,
            distribution_id=distribution_id,
            network=network,
            account=account,
            target_id=body.target_distribution_id,
        )
    return JsonResponse(body=NetworkAccountBody.of(routed))


routes.lists(
    PATH,
    network_accounts.list_network_accounts,
    NetworkAccountPage,
    summary="List the accounts of a network that distributions receive for",
)
routes.resource(f"{PATH}/<account>", NetworkAccountBody).removes(
    network_accounts.remove_network_account,
    summary="Delete the route of an account; the distribution of the webhook address receives for it again",
)
