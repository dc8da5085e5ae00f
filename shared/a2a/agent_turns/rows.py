"""The rows of turns: the hint that one waits, how they end, and which is next.

A turn is `queued`, `running` under a lease (`leases.py`), or `done` with an outcome. A task's turns run one at a
time, in the order of their messages: only the first that is not done `is_next`.
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
"""As many as a turn of a model may be attempted: each attempt holds for one at the most that is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTurn(Job):
    """A message waits for its agent: look for turns now. The worker looks anyway, twice a second.

    Workers have heard of most turns already (`turn_listener.py`), so that one message is enough for many. Nobody reads
    the turn's id, which the release before sends.
    """

    kind = "agents.answer_turn"
    queue = AGENTS
    spacing_seconds = 0.25

    turn_id: str = ""


def calls_of(turn_id: UUID) -> Sequence[UUID]:
    """Name the model calls of a turn, of which one asks a provider at the most, however often the turn is tried.

    A later one is made only where those before it were given up before anybody was asked.
    """
    return [
        uuid5(turn_id, "invocation"),
        *(uuid5(turn_id, f"invocation {at}") for at in range(1, MOST_CALLS)),
    ]


@handles(AnswerTurn, in_parallel=True)
def _answer_turn(context: Context) -> int:
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
    """Count the turns of a turn's task that are to end before it begins."""
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
    """Mark turns as ready that are next of their task; return how many.

    A worker of the previous release, which has ended the turns before them, does not know of the mark.
    """
    is_before = (_earlier.c.task_id == task_turns.c.task_id, _earlier.c.message < task_turns.c.message)
    behind = (task_turns.c.state == "queued", ~task_turns.c.is_next)
    first = select(task_turns.c.id).where(*behind, ~exists().where(*is_before, _earlier.c.state != "done"))
    statement = update(task_turns).where(task_turns.c.id.in_(first.limit(bindparam("limit"))), *behind)
    return run_in_batches(database, statement.values(is_next=True), size=BATCH_SIZE)


def explain(reason: str) -> Message:
    """Make an agent's message of a sentence of ours."""
    return Message(message_id=str(new_id()), role=MessageRole.AGENT, parts=(Part(text=reason),))
