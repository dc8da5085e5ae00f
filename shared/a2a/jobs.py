"""The background work of agents."""

from __future__ import annotations

from dataclasses import dataclass

from shared.jobs import AGENTS, RETENTION, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTurn(Job):
    """A message waits for its agent: look for turns now. The worker looks anyway, twice a second."""

    kind = "agents.answer_turn"
    queue = AGENTS

    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTurns(Job):
    """Find turns that may be claimed and are not marked so."""

    kind = "agents.sweep_turns"
    queue = RETENTION


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeTasks(Job):
    """Forget tasks and idempotency keys that are old enough."""

    kind = "agents.purge_tasks"
    queue = RETENTION
