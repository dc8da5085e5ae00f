"""Tests of the flusher: concurrent updates are written together, in order and once, and none after the turn is lost."""

import threading
from typing import Any

import pytest
from sqlalchemy import text

from shared.a2a.agent_turns import task_log as module
from shared.a2a.agent_turns.task_log import TaskLog
from shared.a2a.tasks.claimed_turns import ClaimedTurn, TurnLost
from shared.a2a.tasks.events import Result
from shared.a2a.types import Artifact, Part, TaskState
from shared.a2a.updates import ArtifactProduced, StatusChanged
from shared.errors import ServiceUnavailable
from tests.shared.a2a.behaviors.agents import Agents
from tests.support.processes.stack import wait_until

WORKING = StatusChanged(state=TaskState.WORKING)
COMPLETED = StatusChanged(state=TaskState.COMPLETED)
UNWRITABLE = ArtifactProduced(artifact=Artifact(artifact_id="b", parts=(Part(text="\ud800"),)))
NEVER = 3600.0


@pytest.fixture
def claimed(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> ClaimedTurn:
    """A turn with a WORKING update; its other updates are written only at the deadline."""
    monkeypatch.setattr(module, "BATCH_SECONDS", NEVER)
    monkeypatch.setattr(agents.log._flusher._thread, "wake", lambda: None)
    claimed = agents.log.claim(agents.say("hello").turn_id)
    assert claimed is not None
    agents.log.append(claimed, WORKING)
    return claimed


def piece(number: int) -> ArtifactProduced:
    artifact = Artifact(artifact_id="a", parts=(Part(text=f"{number} "),))
    return ArtifactProduced(artifact=artifact, append=number > 0, last_chunk=False)


def kinds(agents: Agents, claimed: ClaimedTurn) -> list[str]:
    rows = agents.rows(
        "SELECT kind, sequence FROM task_events WHERE task_id = :id ORDER BY sequence",
        id=claimed.turn.task_id,
    )
    assert [row["sequence"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["kind"] for row in rows]


def text_of(agents: Agents, claimed: ClaimedTurn) -> str | None:
    return agents.task(claimed.turn.task_id).artifacts[0].parts[0].text


def test_the_end_is_written_at_once_with_what_came_before_it(agents: Agents, claimed: ClaimedTurn) -> None:
    for number in range(4):
        agents.log.append(claimed, piece(number))
    assert kinds(agents, claimed) == ["status"]
    agents.log.append(claimed, COMPLETED)
    assert kinds(agents, claimed) == ["status", *["artifact"] * 4, "status"]
    assert text_of(agents, claimed) == "0 1 2 3 "
    turn = agents.turn(claimed.turn.id)
    assert (turn["state"], turn["updates"]) == ("done", 6)


def test_an_update_that_nothing_follows_is_written_soon(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.05)
    claimed = agents.log.claim(agents.say("hello").turn_id)
    assert claimed is not None
    agents.log.append(claimed, WORKING)
    agents.log.append(claimed, piece(0))
    wait_until(lambda: kinds(agents, claimed) == ["status", "artifact"], "the update is written")


def test_a_behavior_that_ends_without_an_end_has_all_of_it_written(
    agents: Agents, claimed: ClaimedTurn
) -> None:
    agents.log.append(claimed, piece(0))
    agents.log.finish(claimed)
    assert kinds(agents, claimed) == ["status", "artifact", "status"]
    assert agents.task(claimed.turn.task_id).status.state is TaskState.COMPLETED


def test_a_failure_comes_after_what_was_said(agents: Agents, claimed: ClaimedTurn) -> None:
    agents.log.append(claimed, piece(0))
    agents.log.fail(claimed, "It broke.")
    assert kinds(agents, claimed) == ["status", "artifact", "status"]
    assert text_of(agents, claimed) == "0 "


@pytest.mark.parametrize("is_written", [True, False])
def test_updates_are_written_once_though_the_database_did_not_say_so(
    agents: Agents, claimed: ClaimedTurn, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    agents.log.append(claimed, piece(0))
    record = TaskLog._record

    def lose_answer(*arguments: Any, **how: Any) -> Result:
        monkeypatch.setattr(TaskLog, "_record", record)
        if is_written:
            record(*arguments, **how)
        raise ServiceUnavailable

    monkeypatch.setattr(TaskLog, "_record", lose_answer)
    claimed.written_at = -NEVER
    said = piece(1)
    with pytest.raises(ServiceUnavailable):
        agents.log.append(claimed, said)
    agents.log.append(claimed, said)
    agents.log.append(claimed, COMPLETED)
    assert kinds(agents, claimed) == ["status", "artifact", "artifact", "status"]
    assert text_of(agents, claimed) == "0 1 "


def test_unwritable_update_fails_its_turn_after_the_earlier_updates(
    agents: Agents, claimed: ClaimedTurn
) -> None:
    agents.log.append(claimed, piece(0))
    claimed.written_at = -NEVER
    with pytest.raises(ValueError, match="surrogates"):
        agents.log.append(claimed, UNWRITABLE)
    agents.log.fail(claimed, "It broke.")
    assert kinds(agents, claimed) == ["status", "artifact", "status"]
    assert agents.task(claimed.turn.task_id).status.state is TaskState.FAILED


def test_an_update_that_cannot_be_written_holds_up_no_other_turn(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.05)
    turns = [agents.log.claim(agents.say("hello").turn_id) for _ in range(2)]
    broken, other = (turn for turn in turns if turn is not None)
    for claimed in (broken, other):
        agents.log.append(claimed, WORKING)
    agents.log.append(broken, UNWRITABLE)
    agents.log.append(other, piece(0))
    wait_until(lambda: kinds(agents, other) == ["status", "artifact"], "the other's update is written")
    with pytest.raises(ValueError, match="surrogates"):
        agents.log.finish(broken)
    agents.log.fail(broken, "It broke.")
    assert agents.task(broken.turn.task_id).status.state is TaskState.FAILED


@pytest.mark.parametrize("is_ending", [False, True])
def test_tasks_that_somebody_holds_keep_no_other_turn_from_being_written(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, is_ending: bool
) -> None:
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.05)
    # Held for less than half a minute, or Postgres ends the transaction: to wait for each, ten seconds, is too long.
    turns = [agents.log.claim(agents.say("hello").turn_id) for _ in range(5)]
    first, *rest, other = (turn for turn in turns if turn is not None)
    for claimed in (first, *rest, other):
        agents.log.append(claimed, WORKING)
    ending = threading.Thread(target=agents.log.append, args=(first, COMPLETED))
    with agents.database.transaction() as session:
        for claimed in (first, *rest):
            hold = text("SELECT FROM tasks WHERE id = :id FOR UPDATE")
            session.execute(hold, {"id": claimed.turn.task_id})
            agents.log.append(claimed, piece(0))
        if is_ending:
            ending.start()
        agents.log.append(other, piece(0))
        wait_until(lambda: kinds(agents, other) == ["status", "artifact"], "the other's update is written")
        session.execute(hold, {"id": first.turn.task_id})
    if is_ending:
        ending.join()
    for claimed in (first, *rest):
        wait_until(lambda one=claimed: "artifact" in kinds(agents, one), "what was held is written")  # type: ignore[misc]
    assert kinds(agents, first) == ["status", "artifact", *["status"] * is_ending]


def test_what_the_database_did_not_answer_comes_after_all_others(
    agents: Agents, claimed: ClaimedTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = agents.log.claim(agents.say("hello").turn_id)
    assert other is not None
    agents.log.append(other, WORKING)
    for late in (claimed, other):
        agents.log.append(late, piece(0))
    record = agents.log._record

    def fail_for_one(writing: ClaimedTurn, *said: Any, **how: Any) -> Result:
        if writing is claimed:
            raise ServiceUnavailable
        return record(writing, *said, **how)

    monkeypatch.setattr(agents.log, "_record", fail_for_one)
    monkeypatch.setattr(agents.log._flusher, "_after_seconds", 0.0)
    for _ in range(2):
        with pytest.raises(ServiceUnavailable):
            agents.log._flusher._write_all()
    assert kinds(agents, other) == ["status", "artifact"]
    monkeypatch.setattr(agents.log, "_record", record)
    agents.log._flusher._write_all()
    assert kinds(agents, claimed) == ["status", "artifact"]


def test_what_was_held_back_when_a_task_was_cancelled_is_not_written(
    agents: Agents, claimed: ClaimedTurn
) -> None:
    agents.log.append(claimed, piece(0))
    agents.cancel(claimed.turn.task_id)
    with pytest.raises(TurnLost):
        agents.log.append(claimed, COMPLETED)
    assert kinds(agents, claimed) == ["status", "status"]


def test_a_turn_that_is_handed_back_has_said_what_it_said(agents: Agents, claimed: ClaimedTurn) -> None:
    agents.log.append(claimed, piece(0))
    agents.log.hand_back(claimed)
    assert kinds(agents, claimed) == [
        "status",
        "artifact",
        "status",
    ]  # a model is not asked again: the task has failed


def test_update_written_during_a_workers_pause_is_not_repeated(
    agents: Agents, claimed: ClaimedTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_SECONDS", 0.0)
    record, said = agents.log._record, piece(0)

    def fail(*_: object, **__: object) -> Result:
        raise ServiceUnavailable

    monkeypatch.setattr(agents.log, "_record", fail)
    with pytest.raises(ServiceUnavailable):
        agents.log.append(claimed, said)
    monkeypatch.setattr(agents.log, "_record", record)
    agents.log._flusher.add(claimed)  # as it is when an update before it was held back
    agents.log._flusher._write_all()
    agents.log.append(claimed, said)
    agents.log.append(claimed, piece(1))
    assert kinds(agents, claimed) == ["status", "artifact", "artifact"]
    assert text_of(agents, claimed) == "0 1 "
