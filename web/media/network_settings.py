"""Routes that administer a distribution's settings for messaging networks. Values are write-only."""

from uuid import UUID

from shared.media.errors import NetworkNotRouted
from shared.media.network_setup import network_administration
from shared.media.networks.base import Network
from web.framework.administration import AdministrationRoutes
from web.framework.calls import JsonResponse, RequestContext
from web.media.network_schemas import NetworkSettingsBody, NewNetworkSettings

PATH = "/distributions/<id:distribution_id>/networks/<network:network>"
routes = AdministrationRoutes("networks")


@routes.changes(
    "PUT",
    PATH,
    NewNetworkSettings,
    NetworkSettingsBody,
    NetworkNotRouted,
    summary="Replace a distribution's settings for a network; a replaced signing secret stays valid for the overlap",
    description=(
        "A setting left out returns to its default. The network must be among the distribution's networks."
    ),
)
def put_network_settings(call: RequestContext, distribution_id: UUID, network: Network) -> JsonResponse:
    body: NewNetworkSettings = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        shown = network_administration.put_network_settings(
            session,
            call.services.settings,
            actor=actor,
            distribution_id=distribution_id,
            network=network,
            values=body.settings,
            overlap_seconds=body.overlap_seconds,
        )
    return JsonResponse(body=NetworkSettingsBody.at(call.services.settings.base_url, shown))


@routes.administers(
    "GET",
    PATH,
    {200: NetworkSettingsBody},
    summary="Get which settings a distribution has for a network, by name and last four characters",
)
def read_network_settings(call: RequestContext, distribution_id: UUID, network: Network) -> JsonResponse:
    actor = call.actor
    with call.services.database.transaction() as session:
        shown = network_administration.get_network_settings(
            session, actor=actor, distribution_id=distribution_id, network=network
        )
    return JsonResponse(body=NetworkSettingsBody.at(call.services.settings.base_url, shown))


routes.resource(PATH, NetworkSettingsBody).removes(
    network_administration.remove_network_settings,
    summary="Delete a distribution's settings for a network; its webhooks are refused from then on",
)
