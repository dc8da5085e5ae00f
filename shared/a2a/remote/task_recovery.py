"""Find our message among an agent's tasks, when it is unknown whether the agent received it."""

from uuid import UUID, uuid5

from shared.a2a.remote.bindings import HISTORY_LENGTH, NOT_IMPLEMENTED, ErrorResponse
from shared.a2a.remote.connection import ASK_SECONDS, AgentConnection
from shared.a2a.remote.response_parser import read_task, read_tasks
from shared.a2a.types import Task


def message_id_of(turn_id: UUID) -> str:
    """Return the id of a turn's message at the agent. The id is the same each time the message is sent."""
    return str(uuid5(turn_id, "message"))


def find_received(
    connection: AgentConnection,
    message_id: str,
    *,
    context_id: str,
    earlier_task_id: str | None,
    seconds: float = ASK_SECONDS,
) -> Task | None:
    """Return the agent's task with this message in its history, or None.

    If a task of the agent has no history or an incomplete history, the result is unknown: raises ErrorResponse. Raises
    ErrorResponse, ResponseInvalid, ResponseTooLarge and EgressError if the agent cannot be asked.
    """
    binding = connection.binding
    if earlier_task_id is not None:
        tasks = [read_task(connection.ask(binding.get(earlier_task_id), seconds=seconds))]
    else:
        tasks = read_tasks(connection.ask(binding.list_tasks(context_id), seconds=seconds))
    for task in tasks:
        if any(message.message_id == message_id for message in task.history):
            return task
    # An empty or full history may hide the message, so its absence proves nothing.
    if any(not 0 < len(task.history) < HISTORY_LENGTH for task in tasks):
        raise ErrorResponse(NOT_IMPLEMENTED)
    return None
