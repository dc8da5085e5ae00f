"""The networks' own webhooks: verify, queue every attachment, answer as the network expects.

Nothing is believed before its signature is verified over the bytes as they came, and a sender who cannot sign gets
one answer, whether the distribution exists or not. Workers fetch, because networks wait three seconds for an answer.
"""

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from flask import Response
from pydantic import Field

from shared import failpoints
from shared.a2a.inbound.errors import TooManyMessages
from shared.a2a.inbound.forwarder import Door
from shared.a2a.inbound.intake import take_network_message
from shared.a2a.inbound.messages import InboundMessage
from shared.db.database import Session
from shared.encryption import Encryption
from shared.errors import DomainError
from shared.files.upload_errors import ContentTooLarge, UploadTimeout
from shared.identity.access.claims import ReportedCaller
from shared.identity.directory.distributions import has_routed_messages
from shared.media.attachments import Attachment
from shared.media.errors import TooManyImports
from shared.media.importing.authority import needs_operator
from shared.media.importing.import_queue import queue_imports
from shared.media.importing.imports import Import
from shared.media.network_settings import find_webhook_credentials
from shared.media.network_setup.network_accounts import find_targets
from shared.media.networks.base import Network
from shared.media.networks.messages import NetworkMessage
from shared.media.networks.signatures import verify
from shared.media.networks.webhooks import Credentials, SignatureInvalid, WebhookRequest, WebhookResponse
from shared.observability.telemetry import MESSAGES, get_logger
from web.dependencies.rate_limits import RateLimited
from web.framework.authentication import Authentication, limit_rate
from web.framework.calls import RequestContext
from web.framework.routes import AnyQuery, RawBody, Routes
from web.http.wire_types import RequestModel
from web.media.distribution_admission import count_for_distribution
from web.media.push_authentication import brute_force_throttle, webhook_request

MAXIMUM_WEBHOOK_BYTES = 1 << 20
BODY = RawBody(media_types=("application/json", "application/x-www-form-urlencoded"))

log = get_logger(__name__)
routes = Routes("webhooks")


class Handshake(RequestModel):
    """How a network asks whether a callback address is ours: WhatsApp alone does it so."""

    mode: str = Field(alias="hub.mode", default="", description="`subscribe`.")
    verify_token: str = Field(alias="hub.verify_token", default="", description="The setting `verifyToken`.")
    challenge: str = Field(alias="hub.challenge", default="", description="What to answer with.")


@routes.route(
    "POST",
    "/distributions/<id:distribution_id>/webhooks/<network:network>",
    summary="Import every attachment that a network's webhook tells of, and send messages to the agent",
    description=(
        "Messages go to the deployment's agent where the distribution's `routesMessages` is on. "
        "The request is signed in the network's own way, with the settings that the distribution "
        "has for it. What tells of nothing is acknowledged and forgotten; what was taken in "
        "before is acknowledged again; what cannot be fetched now is held."
    ),
    authentication=Authentication.SIGNATURE,
    query=AnyQuery,
    body=BODY,
    answers={200: dict.fromkeys(("application/json", "text/xml")), 204: None},
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
    answers={200: "text/plain"},
    errors=(SignatureInvalid, RateLimited),
)
def answer_handshake(call: RequestContext, distribution_id: UUID, network: Network) -> Response:
    return _receive(call, distribution_id, network, b"")


def _receive(call: RequestContext, distribution_id: UUID, network: Network, body: bytes) -> Response:
    with brute_force_throttle(call):
        answer = _take_in(call, distribution_id, network, webhook_request(call, body))
    return _render(answer)


def _take_in(
    call: RequestContext, distribution_id: UUID, network: Network, request: WebhookRequest
) -> WebhookResponse | None:
    verify_again = partial(_verify, call, distribution_id, network, request)
    with call.services.database.autocommit() as session:
        credentials = verify_again(session)
    count_for_distribution(call, distribution_id)
    limit_rate(f"{distribution_id}:{network.name}", call.services)
    for receiver_id, received in _by_receiver(call, distribution_id, network, request):
        attachments = network.attachments(received)
        messages = _routed_messages(call, receiver_id, network, received)
        if attachments or messages:
            failpoints.hit("webhook.verified")
            _queue(call, receiver_id, network, attachments, messages, verify_again)
    failpoints.hit("webhook.before_answer")
    return network.answer(request, credentials)


def _by_receiver(
    call: RequestContext, distribution_id: UUID, network: Network, request: WebhookRequest
) -> Sequence[tuple[UUID, WebhookRequest]]:
    """Give what was received with the distribution that receives it: that of its account, else this one."""
    parts = network.accounts(request)
    accounts = {part.account for part in parts if part.account is not None}
    if not accounts:
        return [(distribution_id, part.request) for part in parts]
    with call.services.database.autocommit() as session:
        targets = find_targets(session, distribution_id, network, accounts)
    return [(targets.get(part.account or "", distribution_id), part.request) for part in parts]


def _verify(
    call: RequestContext, distribution_id: UUID, network: Network, request: WebhookRequest, session: Session
) -> Credentials:
    """Give what the request was verified with. Raises SignatureInvalid."""
    encryption = Encryption(call.services.settings)
    credentials, is_expected = find_webhook_credentials(session, encryption, distribution_id, network)
    verify(network.signature, request, credentials)
    if not is_expected:
        raise SignatureInvalid
    return credentials


def _routed_messages(
    call: RequestContext, distribution_id: UUID, network: Network, request: WebhookRequest
) -> Sequence[NetworkMessage]:
    """Read what is to be sent to the agent, where the distribution routes messages."""
    messages = network.messages(request)
    if not messages:
        return ()
    with call.services.database.autocommit() as session:
        return messages if has_routed_messages(session, distribution_id) else ()


def _queue(
    call: RequestContext,
    distribution_id: UUID,
    network: Network,
    attachments: Sequence[Attachment],
    messages: Sequence[NetworkMessage],
    verify_again: Callable[[Session], object],
) -> None:
    """Take in what was received, unless what it is signed with was replaced or forgotten meanwhile."""
    queued: Sequence[Import] = ()
    with call.services.database.transaction() as session:
        verify_again(session)
        if attachments:
            queued = queue_imports(
                session,
                call.services.settings,
                distribution_id=distribution_id,
                network=network.name,
                attachments=attachments,
            )
        for message in messages:
            _take(session, call, distribution_id, network, message, queued)
        failpoints.hit("webhook.before_commit")
    new = sum(one.is_new for one in queued)
    log.info(
        "webhook.received", network=network.name, attachments=len(queued), new=new, messages=len(messages)
    )


def _take(
    session: Session,
    call: RequestContext,
    distribution_id: UUID,
    network: Network,
    message: NetworkMessage,
    queued: Sequence[Import],
) -> None:
    """Take one message, with what is attached to it, unless it is empty."""
    imports = [one.id for one in queued if one.message_id == message.message_id]
    if message.text is None and not imports:
        return
    sender = message.sender_id
    inbound = InboundMessage(
        network=network.name,
        message_id=message.message_id,
        conversation_id=message.conversation_id,
        text=message.text,
        reported_caller=ReportedCaller(id=sender, display=message.sender_name) if sender else None,
    )
    door = Door(settings=call.services.settings, router=call.services.agents.router)
    try:
        taken = take_network_message(session, door, inbound, distribution_id=distribution_id, imports=imports)
    except DomainError as refusal:
        if not needs_operator(refusal):
            raise
        # Networks switch off an app that refuses: what its operators have to mend is not for the network to hear.
        MESSAGES.labels(network.name, "refused").inc()
        log.warning("message.refused", network=network.name, code=refusal.code)
        return
    MESSAGES.labels(network.name, "waiting" if taken else "replayed").inc()


def _render(answer: WebhookResponse | None) -> Response:
    if answer is not None:
        return Response(answer.body, answer.status, content_type=answer.media_type)
    response = Response(status=200)
    del response.headers["Content-Type"]
    return response
