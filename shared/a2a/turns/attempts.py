"""Whether a turn whose worker died is run again: bounded attempts, and of what was said only what can go on.

A remote agent goes on by itself while workers die: deaths after which its turn has more updates than before are no
attempts, and only those in a row without a word are counted. A worker that is told to stop has made no attempt, nor
has one that took a turn without hearing of it.
"""

from typing import Any

from sqlalchemy import Row, update

from shared.a2a.agents.directory import find_behavior
from shared.a2a.remote.turn_tables import remote_turns
from shared.a2a.tables import task_turns
from shared.a2a.turns.updates import BehaviorKind
from shared.db.database import Session

MAXIMUM_ATTEMPTS = 3
REMOTE_ATTEMPTS = 10
"""Without a word of the agent in between: to ask what became of a message costs nothing."""


def may_run_again(session: Session, turn: Row[Any]) -> bool:
    """Tell whether a lost turn may be run again."""
    if turn.attempts < MAXIMUM_ATTEMPTS and not turn.has_spoken:
        return True
    behavior = find_behavior(session, turn.behavior_id)
    if behavior is None or not behavior.kind.can_resume:
        return False
    if behavior.kind is BehaviorKind.REMOTE:
        return _has_progressed(session, turn) or turn.attempts < REMOTE_ATTEMPTS
    return bool(turn.attempts < MAXIMUM_ATTEMPTS)


def _has_progressed(session: Session, turn: Row[Any]) -> bool:
    """Tell whether the agent has said something since the last death, and then count attempts anew."""
    seen = update(remote_turns).where(
        remote_turns.c.turn_id == turn.id, remote_turns.c.updates_seen < turn.updates
    )
    if not session.execute(seen.values(updates_seen=turn.updates)).rowcount:
        return False
    session.execute(update(task_turns).where(task_turns.c.id == turn.id).values(attempts=0))
    return True
