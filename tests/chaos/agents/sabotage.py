"""Sabotage of agents: each function breaks one rule in this process."""

import random
from typing import Any
from uuid import UUID

from shared.a2a.agent_turns.task_log import TaskLog
from shared.a2a.tasks import submission
from shared.a2a.tasks.claimed_turns import ClaimedTurn
from shared.a2a.updates import Update, settles

SELDOM = 0.02


def ignore_keys() -> None:
    """Handle every repeated message as a new one."""

    def take(*_: Any) -> UUID:
        turn_id: UUID = _[-1]
        return turn_id

    setattr(submission, "claim_key", take)  # noqa: B010 (the module does not export the name)


def forget_updates() -> None:
    """Drop one in fifty updates of an agent."""
    append: Any = TaskLog.append

    def append_most(self: TaskLog, claimed: ClaimedTurn, said: Update) -> None:
        if settles(said) or random.random() > SELDOM:
            append(self, claimed, said)

    setattr(TaskLog, "append", append_most)  # noqa: B010 (mypy objects to an assignment)
