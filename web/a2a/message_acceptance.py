"""Accept a message for an agent, and tell workers and followers of it: for clients of the protocol and for people."""

from shared import failpoints
from shared.a2a.tasks.submission import AcceptedMessage, MessageSubmission, accept
from web.dependencies.services import Services


def accept_message(services: Services, sending: MessageSubmission) -> AcceptedMessage:
    """Accept a message. Raises what `accept` raises."""
    agents = services.agents
    agents.hints.announce_trace(sending.turn_id)
    sent = accept(services.database, sending, agents.pushes)
    failpoints.hit("send.committed")
    agents.hints.announce_turn()
    if sending.message.task_id:
        agents.hints.notify(sent.task_id)  # others may follow it; nobody knows a new one
    return sent
