"""Look for a message of ours among an agent's tasks, when nobody knows whether it was received."""

from uuid import UUID, uuid5

from shared.a2a.remote.bindings import HISTORY_LENGTH, NOT_IMPLEMENTED, ErrorResponse
from shared.a2a.remote.connection import ASK_SECONDS, AgentConnection
from shared.a2a.remote.response_parser import read_task, read_tasks
from shared.a2a.types import Task


def message_id_of(turn_id: UUID) -> str:
    """Give the id that a turn's message has for the agent, the same whenever it is sent."""
    return str(uuid5(turn_id, "message"))


def find_received(
    connection: AgentConnection,
    message_id: str,
    *,
    context_id: str,
    earlier_task_id: str | None,
    seconds: float = ASK_SECONDS,
) -> Task | None:
    """Find the agent's task that has this message in its history.

    Raises ErrorResponse, also when the agent's tasks tell no history, or not all of it, so that nobody can know; and
    ResponseInvalid, ResponseTooLarge and EgressError.
    """
    binding = connection.binding
    if earlier_task_id is not None:
        tasks = [read_task(connection.ask(binding.get(earlier_task_id), seconds=seconds))]
    else:
        tasks = read_tasks(connection.ask(binding.list_tasks(context_id), seconds=seconds))
    for task in tasks:
        if any(message.message_id == message_id for message in task.history):
            return task
    if any(not 0 < len(task.history) < HISTORY_LENGTH for task in tasks):
        raise ErrorResponse(NOT_IMPLEMENTED)
    return None
