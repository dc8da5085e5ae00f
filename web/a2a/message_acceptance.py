"""Accept a message for an agent, and notify workers and subscribers.

The routes of the protocol and the console share this function.
"""

from shared import failpoints
from shared.a2a.tasks.submission import AcceptedMessage, MessageSubmission, accept
from web.dependencies.services import Services


def accept_message(services: Services, sending: MessageSubmission) -> AcceptedMessage:
    """Accept a message and return it. Raises the errors of `accept`."""
    agents = services.agents
    # Announce the trace before the commit: a worker may start the turn as soon as it is committed, and then
    # needs the trace.
    agents.notifier.announce_trace(sending.turn_id)
    sent = accept(services.database, sending, agents.pushes)
    failpoints.hit("send.committed")
    # Announce the turn after the commit: a worker that wakes up earlier would find no turn.
    agents.notifier.announce_turn()
    if sending.message.task_id:
        # Notify subscribers of an existing task only: a new task has no subscribers yet.
        agents.notifier.notify(sent.task_id)
    return sent
