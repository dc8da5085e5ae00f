"""Workers die at every step of a turn: nothing is said twice, nothing is paid twice, and every task ends."""

import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid5

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.agent_turns.lost_turns import INTERRUPTED
from shared.a2a.tasks.submission import AcceptedMessage
from shared.a2a.types import Task, TaskState
from shared.credits import sweeps
from shared.db.database import Database
from tests.shared.a2a.behaviors.agents import Agents, make_agents
from tests.shared.a2a.behaviors.dying_worker import let_die

CATALOG = """
[providers.scripted]
kind = "scripted"
[[models]]
id = "scripted"
prompt_price = "3"
completion_price = "7"
upstreams = [{ provider = "scripted", model = "echo" }]
"""
SCRIPT = (
    "rules:\n- steps: [{status: a}, {artifact: {file: {name: f.txt, text: x}}}, {artifact: b}, {complete: c}]"
)
LOST = "final"


@pytest.fixture
def agents(database: Database, valkey_server: EmbeddedValkey, tmp_path: Path) -> Iterator[Agents]:
    catalog = tmp_path / "models.toml"
    catalog.write_text(CATALOG)
    with make_agents(
        database, valkey_server.url, tmp_path, models_config=catalog, a2a_inline_artifact_bytes=60
    ) as agents:
        yield agents


def settle_lost_calls(agents: Agents) -> None:
    """Let the sweeps of credits do what they do when the leases of calls have ended, a day later."""
    agents.set("UPDATE invocations SET lease_until = now() - interval '1 second' WHERE ended_at IS NULL")
    sweeps.release_overdue_holds(agents.database)
    sweeps.mark_unresolved(agents.database)
    sweeps.settle_unresolved(agents.database, grace=timedelta(0))


def said(task: Task) -> str:
    return "" if task.status.message is None else task.status.message.parts[0].text or ""


def test_a_model_is_called_once_whenever_its_worker_dies(agents: Agents, database_url: str) -> None:
    agents.use_model("scripted")
    short, long = "!tokens 6", "!tokens 20"
    deaths = [
        ("turn.claimed", short, TaskState.COMPLETED, "", [(False, 6)]),
        ("agents.held", short, TaskState.COMPLETED, "", [(False, 6)]),
        ("invocation.dispatched", short, TaskState.FAILED, LOST, [(True, 0)]),
        ("invocation.opened", short, TaskState.FAILED, LOST, [(True, 0)]),
        ("turn.before_append=3", short, TaskState.FAILED, INTERRUPTED, [(True, 0)]),
        ("turn.appended=3", short, TaskState.FAILED, INTERRUPTED, [(True, 0)]),
        ("invocation.settled", short, TaskState.FAILED, INTERRUPTED, [(False, 6)]),
        ("agents.file_stored", long, TaskState.FAILED, INTERRUPTED, [(False, 20)]),
        ("turn.appended=8", short, TaskState.COMPLETED, "", [(False, 6)]),
    ]
    sent = [agents.say(words) for _, words, *_ in deaths]
    points = [(one.turn_id, point) for one, (point, *_) in zip(sent, deaths, strict=True)]
    signals = let_die(agents.settings, database_url, points)
    assert signals == [signal.SIGKILL] * len(deaths)
    tasks = agents.recover(sent)
    settle_lost_calls(agents)
    for task, one, (point, _, state, words, charges) in zip(tasks, sent, deaths, strict=True):
        assert (task.status.state, words in said(task)) == (state, True), point
        assert charged(agents, one) == charges, point
    assert agents.balance.held == 0
    assert agents.discrepancies() == []
    assert len(agents.files()) == 1


@pytest.mark.parametrize("is_released", [False, True])
def test_held_call_that_was_not_made_is_made_after_a_takeover(
    agents: Agents, database_url: str, is_released: bool
) -> None:
    agents.use_model("scripted")
    sent = agents.say("!tokens 6")
    assert let_die(agents.settings, database_url, [(sent.turn_id, "agents.held")]) == [signal.SIGKILL]
    agents.set("UPDATE invocations SET lease_until = now() - interval '1 second'")
    if is_released:
        sweeps.release_overdue_holds(agents.database)
    (task,) = agents.recover([sent])
    assert task.status.state is TaskState.COMPLETED, said(task)
    assert [(row["is_estimated"], row["completion_tokens"]) for row in agents.usage()] == [(False, 6)]
    assert (agents.balance.held, agents.discrepancies()) == (0, [])


def test_call_that_may_have_started_is_not_repeated_after_a_late_takeover(
    agents: Agents, database_url: str
) -> None:
    agents.use_model("scripted")
    sent = agents.say("!tokens 6")
    assert let_die(agents.settings, database_url, [(sent.turn_id, "invocation.opened")]) == [signal.SIGKILL]
    settle_lost_calls(agents)
    (task,) = agents.recover([sent])
    assert (task.status.state, LOST in said(task)) == (TaskState.FAILED, True)
    assert charged(agents, sent) == [(True, 0)]
    assert len(agents.usage()) == 1


def charged(agents: Agents, sent: AcceptedMessage) -> list[tuple[Any, ...]]:
    """Whether a turn's calls were estimated, and their completion tokens."""
    rows = agents.rows(
        "SELECT is_estimated, completion_tokens FROM usage_records WHERE invocation_id = :id",
        id=uuid5(sent.turn_id, "invocation"),
    )
    return [(row["is_estimated"], row["completion_tokens"]) for row in rows]


def test_a_script_says_everything_once_whenever_its_worker_dies(agents: Agents, database_url: str) -> None:
    agents.use_script(SCRIPT)
    points = [
        "turn.claimed",
        "turn.before_append=0",
        "turn.appended=0",
        "agents.file_stored",
        "turn.before_append=1",
        "turn.appended=1",
        "turn.before_append=2",
        "turn.appended=2",
        "turn.before_append=3",
        "turn.appended=3",
    ]
    sent = [agents.say("hello") for _ in points]
    deaths = [(one.turn_id, point) for one, point in zip(sent, points, strict=True)]
    assert let_die(agents.settings, database_url, deaths) == [signal.SIGKILL] * len(points)
    for task, point in zip(agents.recover(sent), points, strict=True):
        events = [next(iter(event)) for event in agents.events(task.id)]
        assert (task.status.state, said(task)) == (TaskState.COMPLETED, "c"), point
        assert events == ["statusUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate"], point
    assert len(agents.files()) == len(points)
