"""Receive a distribution's message: record it once, and route it in the same transaction where nothing is awaited."""

from dataclasses import dataclass
from uuid import UUID

from shared import failpoints
from shared.a2a.door.messages import (
    DistributionMessage,
    InboundMessage,
    context_of,
    get_message,
    get_repeated,
    insert_message,
)
from shared.a2a.door.sending import Door, find_waiting_task, scope_of_receiver
from shared.a2a.tasks.sending import Sent
from shared.database import Session
from shared.identity.receiving import LiveReceiver
from shared.media.authority import authorize_message


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What became of a push: the message's record, and how it was sent if this very push sent it."""

    message: DistributionMessage
    sent: Sent | None
    is_new: bool

    @property
    def outcome(self) -> str:
        """Say it in a word, for the metrics."""
        return self.message.state.lower() if self.is_new else "replayed"


def receive_message(
    session: Session,
    door: Door,
    message: InboundMessage,
    *,
    distribution_id: UUID,
    token_hash: bytes | None = None,
) -> Received:
    """Take a message in the caller's transaction, or find that it was taken before.

    Raises what `authorize_message` and `Door.send` raise, and MessageConflict.
    """
    receiver = authorize_message(session, distribution_id, token_hash=token_hash)
    made = _insert(session, receiver, message)
    if made is None:
        return Received(message=get_repeated(session, distribution_id, message), sent=None, is_new=False)
    sent = door.send(session, receiver, made)
    failpoints.hit("message.before_commit")
    return Received(message=get_message(session, made.id), sent=sent, is_new=True)


def _insert(session: Session, receiver: LiveReceiver, message: InboundMessage) -> DistributionMessage | None:
    context_id = context_of(receiver.distribution_id, message)
    task_id = find_waiting_task(session, scope_of_receiver(receiver), context_id)
    return insert_message(session, receiver, message, continued_task_id=task_id)
