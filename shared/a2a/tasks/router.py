"""Route messages of schedules and distributions to agents. No A2A client sends these messages.

The caller is the agent's own service account (Daemon Identity). The service account acts for the identity that will own
the agent's files, and the agent's organization pays. Permissions are checked when the message is sent.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from shared.a2a.agents.callers import OnBehalf, find_daemon, find_owner, make_agent_caller
from shared.a2a.agents.directory import Scope, authorize, get_agent
from shared.a2a.agents.extensions import activate, check_data, declared_by, require
from shared.a2a.agents.own_extensions import OwnExtensions
from shared.a2a.push.configurations import PushConfigurations
from shared.a2a.tasks.submission import AcceptedMessage, MessageSubmission, send
from shared.a2a.types import Message, SendMessageConfiguration, SendMessageRequest
from shared.config.settings import Settings
from shared.db.database import Session
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.identity.access.callers import Caller
from shared.ids import new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedMessage:
    """A message to route, with its attribution and the extensions that it activates.

    If the message names no task, it creates a task with the id `new_task_id`.
    """

    message: Message
    on_behalf: OnBehalf
    extensions: Collection[str] = ()
    new_task_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Submits routed messages to agents."""

    own_extensions: OwnExtensions
    pushes: PushConfigurations

    @classmethod
    def of(cls, settings: Settings) -> Router:
        """Return a router with the settings of the process."""
        return cls(
            own_extensions=OwnExtensions(settings.base_url),
            pushes=PushConfigurations(encryption=Encryption(settings), policy=EgressPolicy.of(settings)),
        )

    def route(self, session: Session, deployment_id: UUID, routed: RoutedMessage) -> AcceptedMessage:
        """Submit a message in the caller's transaction. The message's task is visible at once.

        Raises AgentNotFound, AgentUnavailable, PermissionDenied, ExtensionSupportRequired, and what `send` raises.
        """
        agent = get_agent(session, deployment_id)
        message = self._drop_extensions_without_data(routed.message)
        declared = declared_by(agent, self.own_extensions)
        active = activate(declared, routed.extensions)
        require(declared, active, routed.extensions)
        check_data(message, active, self.own_extensions)
        caller = _caller(session, deployment_id, routed)
        sending = MessageSubmission(
            request=SendMessageRequest(
                # No client waits for the response, so the task is visible from the start.
                message=message,
                configuration=SendMessageConfiguration(return_immediately=True),
            ),
            agent=agent,
            scope=authorize(caller, agent),
            caller=caller,
            active_extensions=active,
            channel=routed.on_behalf.channel,
            new_task_id=routed.new_task_id or new_id(),
        )
        return send(session, sending, self.pushes)

    def _drop_extensions_without_data(self, message: Message) -> Message:
        """Remove each listed extension of this service that requires data if the message has no data for it.

        Such extensions are active for the agent's response only, in which the agent supplies the data.
        """
        carried = message.metadata or {}
        own = self.own_extensions
        listed = (uri for uri in message.extensions if uri in carried or not any(own.find_errors(uri, None)))
        return message.model_copy(update={"extensions": tuple(listed)})


def scope_of(deployment_id: UUID, daemon_id: UUID, principal_id: UUID) -> Scope:
    """Return the scope of the tasks that are routed to an agent for a principal."""
    return Scope(caller_id=daemon_id, principal_id=principal_id, deployment_id=deployment_id)


def _caller(session: Session, deployment_id: UUID, routed: RoutedMessage) -> Caller:
    on_behalf = routed.on_behalf
    daemon = find_daemon(session, deployment_id)
    owner = find_owner(session, on_behalf.owner_id) if on_behalf.owner_id is not None else None
    caller, _ = make_agent_caller(
        deployment_id, daemon, owner, on_behalf, message_id=routed.message.message_id
    )
    return caller
