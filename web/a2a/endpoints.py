"""Administer the endpoints of deployments.

An endpoint is an external server that receives a deployment's messages.
"""

from uuid import UUID

from shared.a2a.behaviors.administration import BehaviorNameTaken
from shared.a2a.remote import endpoints as domain
from shared.a2a.remote.cards.endpoint_check import check_endpoint as check
from shared.egress.errors import AddressRefused, SchemeRefused, UrlRefused
from web.a2a import endpoint_schemas as schemas
from web.framework.administration import AdministrationRoutes
from web.framework.calls import JsonResponse, RequestContext

ENDPOINT = "/deployments/<id:deployment_id>/endpoint"
routes = AdministrationRoutes("endpoints")


@routes.changes(
    "PUT",
    ENDPOINT,
    schemas.NewEndpoint,
    schemas.EndpointBody,
    SchemeRefused,
    UrlRefused,
    AddressRefused,
    BehaviorNameTaken,
    summary="Replace the endpoint of a deployment; its own A2A 1.0 server then receives its messages",
    description=(
        "The deployment gets a default behavior of kind `remote`, which forwards messages. Omitted fields are "
        "cleared, including the credential."
    ),
)
def put_endpoint(call: RequestContext, deployment_id: UUID) -> JsonResponse:
    body: schemas.NewEndpoint = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        shown = domain.put_endpoint(
            session, call.services.settings, actor=actor, deployment_id=deployment_id, draft=body.draft()
        )
    return JsonResponse(body=schemas.EndpointBody.of(shown))


@routes.administers(
    "POST",
    f"{ENDPOINT}/check",
    {200: schemas.EndpointReportBody},
    summary="Check the endpoint of a deployment: read its card, send a request, and list all problems",
    description=(
        "Reads and stores the agent's card, and asks the server for the tasks of a context that does not exist, with a "
        "request token and the endpoint's credential. May take twenty seconds."
    ),
)
def check_endpoint(call: RequestContext, deployment_id: UUID) -> JsonResponse:
    actor, services = call.actor, call.services
    # Open no transaction here: the check waits for the external server, and opens short transactions itself.
    report = check(
        services.database, services.signing_keys, services.settings, actor=actor, deployment_id=deployment_id
    )
    return JsonResponse(body=schemas.EndpointReportBody.of(report))


endpoint = routes.resource(ENDPOINT, schemas.EndpointBody)
endpoint.reads(
    "read_endpoint",
    domain.get_endpoint,
    summary="Get the endpoint of a deployment, without its credential",
)
endpoint.removes(
    domain.remove_endpoint,
    summary="Delete the endpoint of a deployment, and the behavior that forwarded messages to it",
)
