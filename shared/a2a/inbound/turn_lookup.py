"""Find the turn that answers a message, once it has been routed: for streams of a push, which may be a repeated one."""

from shared.a2a.errors import TaskNotFound
from shared.a2a.inbound.errors import MessageRefused
from shared.a2a.inbound.messages import DistributionMessage, MessageState
from shared.a2a.tasks.events import find_and_hold_task
from shared.a2a.tasks.sending import Sent
from shared.a2a.tasks.snapshots import read_snapshot
from shared.a2a.turns.rows import count_turns_before
from shared.db.database import Session


def get_routed(session: Session, message: DistributionMessage) -> Sent:
    """Say how a message was sent; its task's row is locked, so that all of it is of one moment.

    Raises MessageRefused, and TaskNotFound for a task that is kept no longer.
    """
    if message.state is MessageState.REFUSED:
        raise MessageRefused(f"The agent could not be sent this message: {message.code}.")
    if message.turn_id is None or find_and_hold_task(session, message.task_id) is None:
        raise TaskNotFound
    return Sent(
        turn_id=message.turn_id,
        task_id=message.task_id,
        snapshot=read_snapshot(session, message.task_id, history_length=None),
        is_visible=True,
        is_replay=True,
        turns_before=count_turns_before(session, message.turn_id),
    )
