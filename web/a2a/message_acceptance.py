"""Accept a message for an agent and notify workers and subscribers. The protocol's routes and the console use this."""

from shared import failpoints
from shared.a2a.tasks.submission import AcceptedMessage, MessageSubmission, accept
from web.dependencies.services import Services


def accept_message(services: Services, sending: MessageSubmission) -> AcceptedMessage:
    """Accept a message. Raises the errors of `accept`."""
    agents = services.agents
    # Before the commit: a worker may start the turn as soon as it is visible, and then needs its trace.
    agents.notifier.announce_trace(sending.turn_id)
    sent = accept(services.database, sending, agents.pushes)
    failpoints.hit("send.committed")
    # After the commit: a worker that wakes up earlier would find nothing.
    agents.notifier.announce_turn()
    if sending.message.task_id:
        agents.notifier.notify(sent.task_id)  # a new task has no subscribers yet
    return sent
