"""Receive a verified webhook of a messaging network: queue its attachments and record its messages.

One webhook may have parts for several accounts of an app. The part of an account goes to the distribution to which the
account is routed. Workers fetch the attachments, because networks wait only about three seconds for a response.
"""

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from shared import failpoints
from shared.a2a.inbound.forwarder import MessageForwarder
from shared.a2a.inbound.intake import receive_network_message
from shared.a2a.inbound.messages import InboundMessage
from shared.db.database import Database, Session
from shared.errors import DomainError
from shared.identity.access.claims import ReportedCaller
from shared.identity.directory.distributions import has_routed_messages
from shared.media.attachments import Attachment
from shared.media.importing.authority import needs_operator
from shared.media.importing.import_queue import queue_imports
from shared.media.importing.imports import Import
from shared.media.network_settings import verify_webhook
from shared.media.network_setup.network_accounts import find_targets
from shared.media.networks.base import Network
from shared.media.networks.messages import NetworkMessage
from shared.media.networks.webhooks import WebhookRequest
from shared.observability.telemetry import MESSAGES, get_logger

log = get_logger(__name__)

Verify = Callable[[Session], object]
"""Verifies the webhook again in a transaction. Raises SignatureInvalid."""


def receive_webhook(
    database: Database,
    forwarder: MessageForwarder,
    *,
    distribution_id: UUID,
    network: Network,
    request: WebhookRequest,
) -> None:
    """Queue the attachments and record the messages of a webhook that was verified.

    Each receiving distribution has its own transaction. If the network repeats a webhook, messages that were already
    recorded are skipped. Raises SignatureInvalid if the settings have changed since the first verification. Raises
    TooManyImports and TooManyMessages.
    """
    verify = partial(
        verify_webhook,
        settings=forwarder.settings,
        distribution_id=distribution_id,
        network=network,
        request=request,
    )
    for receiver_id, received in _split_by_receiver(database, distribution_id, network, request):
        attachments = network.attachments(received)
        messages = _routed_messages(database, receiver_id, network, received)
        if attachments or messages:
            failpoints.hit("webhook.verified")
            _record(database, forwarder, receiver_id, network, attachments, messages, verify)


def _split_by_receiver(
    database: Database, distribution_id: UUID, network: Network, request: WebhookRequest
) -> Sequence[tuple[UUID, WebhookRequest]]:
    """Return each part of a webhook with the distribution to which its account is routed.

    The default is the distribution of the webhook's address.
    """
    parts = network.accounts(request)
    accounts = {part.account for part in parts if part.account is not None}
    if not accounts:
        return [(distribution_id, part.request) for part in parts]
    with database.autocommit() as session:
        targets = find_targets(session, distribution_id, network, accounts)
    return [(targets.get(part.account or "", distribution_id), part.request) for part in parts]


def _routed_messages(
    database: Database, distribution_id: UUID, network: Network, request: WebhookRequest
) -> Sequence[NetworkMessage]:
    """Return the messages of a request, or no message if the distribution does not route messages to its agent."""
    messages = network.messages(request)
    if not messages:
        return ()
    with database.autocommit() as session:
        return messages if has_routed_messages(session, distribution_id) else ()


def _record(
    database: Database,
    forwarder: MessageForwarder,
    distribution_id: UUID,
    network: Network,
    attachments: Sequence[Attachment],
    messages: Sequence[NetworkMessage],
    verify: Verify,
) -> None:
    queued: Sequence[Import] = ()
    with database.transaction() as session:
        # Verify again in this transaction, because the secret may have been replaced or deleted since the first check.
        verify(session)
        if attachments:
            queued = queue_imports(
                session,
                forwarder.settings,
                distribution_id=distribution_id,
                network=network.name,
                attachments=attachments,
            )
        for message in messages:
            _record_message(session, forwarder, distribution_id, network, message, queued)
        failpoints.hit("webhook.before_commit")
    new = sum(one.is_new for one in queued)
    log.info(
        "webhook.received", network=network.name, attachments=len(queued), new=new, messages=len(messages)
    )


def _record_message(
    session: Session,
    forwarder: MessageForwarder,
    distribution_id: UUID,
    network: Network,
    message: NetworkMessage,
    queued: Sequence[Import],
) -> None:
    """Record one message with its imports. A message with neither text nor attachments is dropped."""
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
    try:
        taken = receive_network_message(
            session, forwarder, inbound, distribution_id=distribution_id, imports=imports
        )
    except DomainError as refusal:
        if not needs_operator(refusal):
            raise
        # The network must see success: networks disable an app if its webhooks fail, and only an operator can
        # resolve this error.
        MESSAGES.labels(network.name, "refused").inc()
        log.warning("message.refused", network=network.name, code=refusal.code)
        return
    MESSAGES.labels(network.name, "waiting" if taken else "replayed").inc()
