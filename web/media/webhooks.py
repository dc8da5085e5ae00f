"""Routes of messaging networks' webhooks: verify a request, receive its messages, and respond as the network expects.

No field of a body counts before the signature over the received bytes is verified. A client that cannot sign
gets the same response whether or not the distribution exists.
"""

from uuid import UUID

from flask import Response
from pydantic import Field

from shared import failpoints
from shared.a2a.inbound import network_webhooks
from shared.a2a.inbound.errors import TooManyMessages
from shared.a2a.inbound.forwarder import MessageForwarder
from shared.files.errors import ContentTooLarge, UploadTimeout
from shared.media.errors import TooManyImports
from shared.media.network_settings import verify_webhook
from shared.media.networks.base import Network
from shared.media.networks.webhooks import SignatureInvalid, WebhookResponse
from web.dependencies.rate_limits import RateLimited
from web.framework.authentication import Authentication, limit_rate
from web.framework.calls import RequestContext
from web.framework.routes import AnyQuery, RawBody, Routes
from web.http.wire_types import RequestModel
from web.media.distribution_admission import count_for_distribution
from web.media.push_authentication import brute_force_throttle, webhook_request

MAXIMUM_WEBHOOK_BYTES = 1 << 20
BODY = RawBody(media_types=("application/json", "application/x-www-form-urlencoded"))

routes = Routes("webhooks")


class Handshake(RequestModel):
    """The request by which WhatsApp checks that it owns a callback address."""

    mode: str = Field(alias="hub.mode", default="", description="`subscribe`.")
    verify_token: str = Field(alias="hub.verify_token", default="", description="The setting `verifyToken`.")
    challenge: str = Field(alias="hub.challenge", default="", description="The text to return.")


@routes.route(
    "POST",
    "/distributions/<id:distribution_id>/webhooks/<network:network>",
    summary="Import the attachments of a network's webhook and send its messages to the agent",
    description=(
        "Messages go to the deployment's agent where the distribution's `routesMessages` is on. "
        "The request is signed in the network's own way, with the distribution's settings for it. "
        "Webhooks without attachments or messages, and repeated ones, are acknowledged; an import "
        "that cannot be fetched now is held."
    ),
    authentication=Authentication.SIGNATURE,
    query=AnyQuery,
    body=BODY,
    responses={200: dict.fromkeys(("application/json", "text/xml")), 204: None},
    errors=(
        SignatureInvalid,
        RateLimited,
        ContentTooLarge,
        UploadTimeout,
        TooManyImports,
        TooManyMessages,
    ),
)
def receive_webhook(call: RequestContext, distribution_id: UUID, network: Network) -> Response:
    body = call.read_small_body(MAXIMUM_WEBHOOK_BYTES)
    return _receive(call, distribution_id, network, body)


@routes.route(
    "GET",
    "/distributions/<id:distribution_id>/webhooks/<network:network>",
    summary="Confirm the address of a webhook in a network's handshake",
    authentication=Authentication.SIGNATURE,
    query=Handshake,
    responses={200: "text/plain"},
    errors=(SignatureInvalid, RateLimited),
)
def answer_handshake(call: RequestContext, distribution_id: UUID, network: Network) -> Response:
    return _receive(call, distribution_id, network, b"")


def _receive(call: RequestContext, distribution_id: UUID, network: Network, body: bytes) -> Response:
    services = call.services
    request = webhook_request(call, body)
    with brute_force_throttle(call):
        with services.database.autocommit() as session:
            credentials = verify_webhook(
                session,
                settings=services.settings,
                distribution_id=distribution_id,
                network=network,
                request=request,
            )
        # Count after the verification: an anonymous client must not use up an organization's share.
        count_for_distribution(call, distribution_id)
        limit_rate(f"{distribution_id}:{network.name}", services)
        network_webhooks.receive_webhook(
            services.database,
            MessageForwarder(settings=services.settings, router=services.agents.router),
            distribution_id=distribution_id,
            network=network,
            request=request,
        )
        failpoints.hit("webhook.before_answer")
        return _render(network.respond(request, credentials))


def _render(sent: WebhookResponse | None) -> Response:
    if sent is not None:
        return Response(sent.body, sent.status, content_type=sent.media_type)
    # Remove the media type: an empty body has none, and some networks parse a body with a declared type.
    response = Response(status=200)
    del response.headers["Content-Type"]
    return response
