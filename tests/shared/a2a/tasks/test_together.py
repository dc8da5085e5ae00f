"""Updates that come at once are written together: in their order, each once, and none after the turn is lost."""

import pytest

from shared.a2a.tasks import log as module
from shared.a2a.tasks.events import Result
from shared.a2a.tasks.log import ClaimedTurn, TaskLog, TurnLost
from shared.a2a.turns.updates import ArtifactProduced, StatusChanged
from shared.a2a.types import Artifact, Part, TaskState
from shared.errors import Unavailable
from tests.shared.a2a.behaviors.agents import Agents
from tests.support.stack import wait_until

WORKING = StatusChanged(state=TaskState.WORKING)
COMPLETED = StatusChanged(state=TaskState.COMPLETED)
UNWRITABLE = ArtifactProduced(artifact=Artifact(artifact_id="b", parts=(Part(text="\ud800"),)))
NEVER = 3600.0


@pytest.fixture
def claimed(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> ClaimedTurn:
    """A turn that has said that it works, of which nothing else is written until it must be."""
    monkeypatch.setattr(module, "TOGETHER_SECONDS", NEVER)
    monkeypatch.setattr(agents.log._thread, "wake", lambda: None)
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
    monkeypatch.setattr(module, "TOGETHER_SECONDS", 0.05)
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

    def lose_answer(*arguments: object) -> Result:
        monkeypatch.setattr(TaskLog, "_record", record)
        if is_written:
            record(*arguments)  # type: ignore[arg-type]
        raise Unavailable

    monkeypatch.setattr(TaskLog, "_record", lose_answer)
    claimed.written_at = -NEVER
    said = piece(1)
    with pytest.raises(Unavailable):
        agents.log.append(claimed, said)
    agents.log.append(claimed, said)
    agents.log.append(claimed, COMPLETED)
    assert kinds(agents, claimed) == ["status", "artifact", "artifact", "status"]
    assert text_of(agents, claimed) == "0 1 "


def test_an_update_that_cannot_be_written_fails_its_turn_and_loses_nothing_before_it(
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
    monkeypatch.setattr(module, "TOGETHER_SECONDS", 0.05)
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


def test_an_update_that_was_written_while_its_worker_paused_is_not_written_again(
    agents: Agents, claimed: ClaimedTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOGETHER_SECONDS", 0.0)
    record, said = agents.log._record, piece(0)

    def fail(*_: object) -> Result:
        raise Unavailable

    monkeypatch.setattr(agents.log, "_record", fail)
    with pytest.raises(Unavailable):
        agents.log.append(claimed, said)
    monkeypatch.setattr(agents.log, "_record", record)
    agents.log._late[claimed.turn.id] = claimed  # as it is when an update before it was held back
    agents.log._write_late()
    agents.log.append(claimed, said)
    agents.log.append(claimed, piece(1))
    assert kinds(agents, claimed) == ["status", "artifact", "artifact"]
    assert text_of(agents, claimed) == "0 1 "
