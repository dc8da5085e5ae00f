"""Receive messages that a distribution pushes for the agent of its deployment."""

from functools import partial
from uuid import UUID

from flask import Response

from shared import failpoints
from shared.a2a import errors as agent_errors
from shared.a2a.agents.callers import AgentUnavailable
from shared.a2a.inbound.errors import MessageConflict, MessageRefused, TooManyMessages
from shared.a2a.inbound.forwarder import MessageForwarder
from shared.a2a.inbound.intake import IntakeResult, receive_message
from shared.a2a.inbound.messages import InboundMessage
from shared.a2a.types import StreamResponse
from shared.credits.errors import StorageUnpaid
from shared.egress.errors import AddressRefused, HeaderRefused, SchemeRefused, UrlRefused
from shared.errors import DomainError, PermissionDenied, ServiceUnavailable
from shared.identity.access.claims import ReportedCaller
from shared.identity.errors import OrganizationSuspended, ResourceNotFound, TargetDisabled
from shared.media import errors as media_errors
from shared.media.importing.authority import Proof
from shared.media.importing.imports import STANDARD
from shared.media.networks.webhooks import SignatureInvalid
from shared.observability.telemetry import MESSAGES
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import Routes
from web.http.negotiation import wants_events
from web.http.requests import MAXIMUM_JSON_BYTES, UnsupportedMediaType, read_json
from web.inbound import schemas
from web.inbound.streaming import stream_agent_response
from web.media.push_authentication import read_pushed_body
from web.media.pushes import check_source, read_attachment

routes = Routes("messages")

_ERRORS: tuple[type[DomainError], ...] = (
    SignatureInvalid,
    PermissionDenied,
    ResourceNotFound,
    OrganizationSuspended,
    media_errors.DistributionDisabled,
    TargetDisabled,
    StorageUnpaid,
    MessageConflict,
    TooManyMessages,
    media_errors.ImportConflict,
    media_errors.ImportNotFound,
    media_errors.TooManyImports,
    UrlRefused,
    SchemeRefused,
    AddressRefused,
    HeaderRefused,
    AgentUnavailable,
    agent_errors.AgentNotFound,
    agent_errors.UnsupportedOperation,
    agent_errors.ContentTypeNotSupported,
    agent_errors.ExtensionSupportRequired,
    agent_errors.TaskNotFound,
    agent_errors.TooManyStreams,
    MessageRefused,
    ServiceUnavailable,
)


@routes.route(
    "POST",
    "/distributions/<id:distribution_id>/messages",
    summary="Send a message that a distribution received to its deployment's agent",
    description=(
        "Attachments are imported first, and the message then contains them as files; it names each one that "
        "cannot be imported. The receiving identity owns the files that the agent creates, and the organization "
        "pays. A repeated `messageId` with the same content is accepted once; with other content it is refused. "
        "With `Accept: text/event-stream` the response is the task's stream, until the agent's turn has ended."
    ),
    authentication=Authentication.DISTRIBUTION_OR_SIGNATURE,
    body=schemas.NewMessage,
    responses={202: schemas.RoutedMessageBody, 200: {"text/event-stream": StreamResponse}},
    errors=_ERRORS,
)
def push_message(call: RequestContext, distribution_id: UUID) -> JsonResponse | Response:
    raw, proof = read_pushed_body(call, distribution_id)
    receive = partial(_receive, call, distribution_id, _read(call, raw), proof)
    if wants_events(call.http):
        return stream_agent_response(call, distribution_id, proof, receive)
    return JsonResponse(body=schemas.RoutedMessageBody.of(receive()), status=202)


def _read(call: RequestContext, raw: bytes | None) -> InboundMessage:
    """Return the message of an authenticated distribution.

    `raw` is the body, if the signature check has read it. If `raw` is None, read the body.
    """
    if call.http.mimetype != "application/json":
        raise UnsupportedMediaType("Send the body as application/json.")
    if raw is None:
        raw = call.read_small_body(MAXIMUM_JSON_BYTES)
    sent = read_json(raw, schemas.NewMessage)
    for item in sent.attachments:
        # Check before storing anything, so that one invalid attachment refuses the whole message.
        check_source(call, item)
    return _inbound(sent)


def _inbound(sent: schemas.NewMessage) -> InboundMessage:
    reported, items = sent.reported_caller, sent.attachments
    return InboundMessage(
        network=STANDARD,
        message_id=sent.message_id,
        conversation_id=sent.conversation_id,
        text=sent.text,
        attachments=[read_attachment(item, sent.message_id, sent.conversation_id) for item in items],
        secret_headers={item.attachment_id: item.headers for item in items if item.headers},
        channel=sent.channel,
        reported_caller=ReportedCaller(id=reported.id, display=reported.display) if reported else None,
    )


def _receive(
    call: RequestContext, distribution_id: UUID, message: InboundMessage, proof: Proof
) -> IntakeResult:
    services = call.services
    forwarder = MessageForwarder(settings=services.settings, router=services.agents.router)
    failpoints.hit("message.received")
    with services.database.transaction() as session:
        received = receive_message(session, forwarder, message, distribution_id=distribution_id, proof=proof)
    # From here on the message is stored. If the process ends now, a sweep finds the turn without the wake-up
    # messages.
    failpoints.hit("message.taken")
    if received.sent is not None:
        services.agents.notifier.announce_trace(received.sent.turn_id)
        services.agents.notifier.announce_turn()
        services.agents.notifier.notify(received.sent.task_id)
    MESSAGES.labels(message.network, received.outcome).inc()
    return received
