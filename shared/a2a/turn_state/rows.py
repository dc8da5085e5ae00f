"""Rows of turns: the wake-up job, how turns end, and which one is next.

A turn is `queued`, `running` under a lease (`leases.py`), or `done` with an outcome. A task's turns run one at a time,
in the order of their messages: only the first that is not done has `is_next`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID, uuid5

from sqlalchemy import bindparam, exists, func, select, update

from shared.a2a.tables import task_turns
from shared.a2a.types import Message, MessageRole, Part
from shared.db.database import Database, Session
from shared.ids import new_id
from shared.messaging.jobs import Context, Job, handles, sweep
from shared.messaging.queues import AGENTS, RETENTION
from shared.runtime.batches import run_in_batches

_earlier = task_turns.alias("earlier")
BATCH_SIZE = 1000
MOST_CALLS = 3
"""One for each attempt of a model's turn: an attempt gives up at most one hold before a provider is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTurn(Job):
    """Wake the workers, because a message waits for its agent. Workers also poll twice a second.

    Most turns were announced already (`shared/a2a/agent_turns/turn_listener.py`), so one job serves many turns. The
    previous release sends `turn_id`, but no release reads this field.
    """

    kind = "agents.answer_turn"
    queue = AGENTS
    # Jobs that are enqueued within this time are sent as one job.
    spacing_seconds = 0.25

    turn_id: str = ""


def calls_of(turn_id: UUID) -> Sequence[UUID]:
    """Return the ids of a turn's possible model calls, in order. At most one of them reaches a provider.

    A later id is used only if no provider was called for the earlier ids.
    """
    return [
        uuid5(turn_id, "invocation"),
        *(uuid5(turn_id, f"invocation {at}") for at in range(1, MOST_CALLS)),
    ]


@handles(AnswerTurn, in_parallel=True)
def _answer_turn(context: Context) -> int:
    # The job names no turn: the woken worker claims turns itself, in a fair order.
    context.wake(AGENTS)
    return 0


class TurnOutcome(StrEnum):
    """How a turn ended."""

    ANSWERED = "answered"
    FAILED = "failed"
    INVALID = "invalid"
    CANCELED = "canceled"
    DROPPED = "dropped"


def count_turns_before(session: Session, turn_id: UUID) -> int:
    """Return the number of unfinished turns of the same task that come before a turn."""
    statement = (
        select(func.count())
        .select_from(_earlier)
        .join(task_turns, task_turns.c.task_id == _earlier.c.task_id)
        .where(
            task_turns.c.id == turn_id, _earlier.c.message < task_turns.c.message, _earlier.c.state != "done"
        )
    )
    return int(session.execute(statement).scalar_one())


@sweep("agents.sweep_turns", queue=RETENTION, every_seconds=30)
def _sweep_turns(context: Context) -> int:
    return mark_next_turns(context.database)


def mark_next_turns(database: Database) -> int:
    """Set `is_next` for queued turns that are the first of their task; return their number.

    Workers of the previous release end turns without setting `is_next` for the next turn of the task.
    """
    is_before = (_earlier.c.task_id == task_turns.c.task_id, _earlier.c.message < task_turns.c.message)
    # Repeat the condition in the UPDATE: another transaction may have changed the row since the subquery.
    behind = (task_turns.c.state == "queued", ~task_turns.c.is_next)
    first = select(task_turns.c.id).where(*behind, ~exists().where(*is_before, _earlier.c.state != "done"))
    statement = update(task_turns).where(task_turns.c.id.in_(first.limit(bindparam("limit"))), *behind)
    return run_in_batches(database, statement.values(is_next=True), size=BATCH_SIZE)


def explain(reason: str) -> Message:
    """Return a message with the agent's role and this text, for errors that the service reports to the client."""
    return Message(message_id=str(new_id()), role=MessageRole.AGENT, parts=(Part(text=reason),))
