"""Forward a received message to the agent of its distribution, as a message of the A2A protocol.

The caller is the service account of the target deployment. The receiving identity owns the files that the agent stores,
and the deployment's organization pays. If the last task of the conversation waits for input, the message continues this
task. Otherwise the message creates a task.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select, update

from shared.a2a.agents.callers import OnBehalf
from shared.a2a.agents.directory import Scope
from shared.a2a.inbound.attachments import attachment_parts
from shared.a2a.inbound.messages import DistributionMessage, mark_routed
from shared.a2a.tables import tasks
from shared.a2a.tasks.events import find_and_lock_task
from shared.a2a.tasks.router import RoutedMessage, Router, scope_of
from shared.a2a.tasks.snapshots import in_scope
from shared.a2a.tasks.submission import AcceptedMessage
from shared.a2a.types import Message, MessageRole, Part, TaskState
from shared.config.settings import Settings
from shared.db.database import Session
from shared.identity.access.permissions import Permission
from shared.identity.authentication.distribution_lookup import LiveReceiver
from shared.ids import new_id
from shared.media.importing.authority import require_executor

ACTIVATED = ("distribution", "file-artifact")
"""The extensions of this service that are active for all messages of distributions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageForwarder:
    """The settings and the router for received messages."""

    settings: Settings
    router: Router

    def send(self, session: Session, receiver: LiveReceiver, message: DistributionMessage) -> AcceptedMessage:
        """Send a waiting message to its agent, and record the message as routed.

        Raises PermissionDenied and the errors of `Router.route`.
        """
        # Check the permission again, because it may have been revoked while the message waited.
        if message.imports:
            require_executor(receiver, Permission.FILE_READ)
        task_id, is_new = _choose_task(session, scope_of_receiver(receiver), message)
        request = message.request or {}
        routed = RoutedMessage(
            message=Message(
                message_id=message.message_id,
                context_id=message.context_id,
                task_id=None if is_new else str(task_id),
                role=MessageRole.USER,
                parts=self._parts(session, message, task_id),
            ),
            on_behalf=OnBehalf(
                owner_id=receiver.principal_id,
                payer_id=receiver.organization_id,
                distribution_id=receiver.distribution_id,
                # Use the record's id, so that all usage of this message has the same transaction.
                transaction_id=f"message/{message.id}",
                reported_caller=request.get("reportedCaller"),
                channel=request["channel"],
            ),
            extensions=(*self._activated(), *request.get("extensions", ())),
            new_task_id=task_id,
        )
        sent = self.router.route(session, receiver.deployment_id, routed)
        # Updates of the task go to the distribution that this column names (`shared/a2a/push/distribution_updates.py`).
        session.execute(
            update(tasks).where(tasks.c.id == sent.task_id).values(distribution_id=receiver.distribution_id)
        )
        kept_days = self.settings.media_record_days
        mark_routed(session, message, task_id=sent.task_id, turn_id=sent.turn_id, kept_days=kept_days)
        return sent

    def _parts(self, session: Session, message: DistributionMessage, task_id: UUID) -> tuple[Part, ...]:
        text = (message.request or {}).get("text")
        texts = (Part(text=text),) if text else ()
        files = attachment_parts(session, message.imports, task_id, base_url=self.settings.base_url)
        return (*texts, *files)

    def _activated(self) -> tuple[str, ...]:
        return tuple(f"{self.settings.base_url}/extensions/{name}/v1" for name in ACTIVATED)


def find_waiting_task(session: Session, scope: Scope, context_id: str) -> UUID | None:
    """Return the last task of a conversation if this task waits for input. Otherwise return None."""
    newest = (
        select(tasks.c.id, tasks.c.state)
        .where(*in_scope(scope), tasks.c.context_id == context_id, tasks.c.is_visible)
        .order_by(tasks.c.status_at.desc(), tasks.c.id.desc())
        .limit(1)
    )
    row = session.execute(newest).one_or_none()
    return row.id if row is not None and TaskState(row.state).is_interrupted else None


def scope_of_receiver(receiver: LiveReceiver) -> Scope:
    """Return the scope of the tasks of a distribution's messages."""
    return scope_of(receiver.deployment_id, receiver.daemon_id, receiver.principal_id)


def _choose_task(session: Session, scope: Scope, message: DistributionMessage) -> tuple[UUID, bool]:
    """Return the task to which a message goes, and whether it must be created.

    If the task has ended while the message's attachments were fetched, it accepts no message, so a new task is needed.
    """
    locked = find_and_lock_task(session, message.task_id)
    if locked is None:
        return message.task_id, True
    own = select(tasks.c.id).where(tasks.c.id == locked.id, *in_scope(scope))
    if locked.state.is_terminal or session.execute(own).one_or_none() is None:
        return new_id(), True
    return locked.id, False
