"""A tick becomes one task of the agent, whatever looks and dies, or its reason is written down."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from shared import failpoints
from shared.a2a.schedules import scheduler as running
from shared.a2a.schedules.administration import (
    create_schedule,
    delete_schedule,
    disable_schedule,
    enable_schedule,
    get_schedule,
    list_runs,
    replace_schedule,
)
from shared.a2a.schedules.cron import Cron
from shared.a2a.schedules.resources import Missed, Schedule, ScheduleDraft
from shared.a2a.schedules.scheduler import Scheduler, run_due_schedules
from shared.a2a.types import TaskState
from shared.errors import ServiceUnavailable
from shared.identity.access.authorization import OPERATOR
from tests.shared.a2a.behaviors.agents import Agents

EVERY_MINUTE = "* * * * *"
MESSAGE = {"parts": [{"text": "It is ${tick}, says ${schedule}"}, {"data": {"n": 1}}], "metadata": {"m": 1}}


def draft(**changes: Any) -> ScheduleDraft:
    """What comes once a day, and did a moment ago."""
    now = datetime.now(UTC)
    values = {
        "name": "round",
        "cron": f"{now.minute} {now.hour} * * *",
        "time_zone": "UTC",
        "message": MESSAGE,
    }
    return ScheduleDraft(**{**values, **changes})


def schedule(agents: Agents, **changes: Any) -> Schedule:
    with agents.database.transaction() as session:
        return create_schedule(
            session, actor=OPERATOR, deployment_id=agents.deployment.deployment.id, draft=draft(**changes)
        )


def of(agents: Agents, made: Schedule) -> dict[str, Any]:
    return {"actor": OPERATOR, "deployment_id": agents.deployment.deployment.id, "schedule_id": made.id}


def owe(agents: Agents, made: Schedule, minutes: int) -> None:
    """Let the schedule have waited since so many minutes before its last tick."""
    cron, now = Cron(expression=made.cron, time_zone=made.time_zone), datetime.now(UTC)
    (last,) = cron.last_until(now, since=now - timedelta(days=2), limit=1)
    next_at = last - timedelta(minutes=minutes)
    agents.set("UPDATE schedules SET next_at = :next_at WHERE id = :id", next_at=next_at, id=made.id)


def runs(agents: Agents, made: Schedule) -> list[Any]:
    """What became of its ticks, oldest first."""
    with agents.database.transaction() as session:
        return list(reversed(list_runs(session, **of(agents, made)).items))


def states(agents: Agents, made: Schedule) -> list[tuple[str, int]]:
    return [(run.state.value, run.passed_over) for run in runs(agents, made)]


def test_a_tick_becomes_a_task_that_the_agent_answers(agents: Agents, scheduler: Scheduler) -> None:
    made = schedule(agents)
    assert run_due_schedules(scheduler) == 0
    owe(agents, made, 0)
    assert run_due_schedules(scheduler) == 1
    (run,) = runs(agents, made)
    (turn,) = agents.rows("SELECT * FROM task_turns WHERE task_id = :id", id=run.task_id)
    agents.execution.answer_turn(turn["id"])
    task = agents.task(run.task_id)
    tick = run.tick_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert task.status.message is not None
    assert (task.status.state, task.status.message.parts[0].text) == (
        TaskState.COMPLETED,
        f"It is {tick}, says round",
    )
    assert task.history[0].metadata == {"m": 1}
    assert runs(agents, made)[0].task_state == TaskState.COMPLETED
    with agents.database.transaction() as session:
        next_at = get_schedule(session, **of(agents, made)).next_at
    assert next_at is not None
    assert next_at > datetime.now(UTC)


def test_a_schedule_activates_extensions_whose_data_the_agent_gives(
    agents: Agents, scheduler: Scheduler
) -> None:
    event = f"{agents.settings.base_url}/extensions/event/v1"
    data = {"type": "tick", "source": "/schedules", "id": "1"}
    for metadata, listed in ((None, ()), ({event: data}, (event,))):
        message = {"parts": [{"text": "${text}"}], "extensions": [event], "metadata": metadata}
        made = schedule(agents, name=str(listed), message=message)
        owe(agents, made, 0)
        run_due_schedules(scheduler)
        (run,) = runs(agents, made)
        assert (run.state, run.code) == ("started", None)
        (turn,) = agents.rows("SELECT * FROM task_turns WHERE task_id = :id", id=run.task_id)
        assert turn["active_extensions"] == [event]
        assert agents.task(run.task_id).history[0].extensions == listed


def test_work_is_the_daemons_own_without_a_principal(agents: Agents, scheduler: Scheduler) -> None:
    owe(agents, schedule(agents), 0)
    run_due_schedules(scheduler)
    (turn,) = agents.rows(
        "SELECT turns.* FROM task_turns AS turns JOIN tasks ON tasks.id = task_id WHERE tasks.deployment_id = :id",
        id=agents.deployment.deployment.id,
    )
    claimed = agents.log.claim(turn["id"])
    assert claimed is not None
    caller, daemon_id = claimed.turn.caller, agents.deployment.deployment.daemon_identity_id
    assert caller.owner is not None
    assert (caller.executor.id, caller.owner.id, caller.payer_id) == (
        daemon_id,
        daemon_id,
        agents.organization_id,
    )


def test_a_principal_receives_and_gives_no_permission(agents: Agents, scheduler: Scheduler) -> None:
    principal = agents.identity.principal(agents.organization_id)
    first = schedule(agents, principal_identity_id=principal.id)
    second = schedule(agents, principal_identity_id=principal.id)  # may be used by several
    for made in (first, second):
        owe(agents, made, 0)
    run_due_schedules(scheduler)
    (run,) = runs(agents, second)
    (turn,) = agents.rows("SELECT * FROM task_turns WHERE task_id = :id", id=run.task_id)
    claimed = agents.log.claim(turn["id"])
    assert claimed is not None
    caller = claimed.turn.caller
    assert caller.owner is not None
    assert (caller.owner.kind, caller.owner.id) == ("PrincipalIdentity", principal.id)
    assert caller.executor.id == agents.deployment.deployment.daemon_identity_id
    assert claimed.turn.attribution.principal_id == principal.id
    assert set(caller.permissions_by_scope) == {agents.organization_id}


def test_however_many_look_a_tick_comes_once(agents: Agents, scheduler: Scheduler) -> None:
    made = [schedule(agents) for _ in range(6)]
    for one in made:
        owe(agents, one, 0)
    start = threading.Barrier(4)

    def look() -> None:
        start.wait(60)
        run_due_schedules(scheduler)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [states(agents, one) for one in made] == [[("started", 0)]] * 6


def test_a_death_leaves_a_tick_run_or_not_begun(
    agents: Agents, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = schedule(agents)
    owe(agents, made, 0)
    for point, expected in (("schedules.before_commit", 0), ("schedules.committed", 1)):
        with dying_at(point, monkeypatch), pytest.raises(Death):
            run_due_schedules(scheduler)
        assert len(runs(agents, made)) == expected
        tasks = "SELECT count(*) AS n FROM tasks WHERE deployment_id = :id"
        assert agents.rows(tasks, id=agents.deployment.deployment.id) == [{"n": expected}]
    assert run_due_schedules(scheduler) == 0


class Death(BaseException):
    """Ends everything that was under way."""


@contextmanager
def dying_at(point: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def reach(reached: str) -> None:
        if reached == point:
            raise Death

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", reach)
        yield


@pytest.mark.parametrize(
    ("missed", "run", "passed_over"),
    [
        (Missed.SKIP, ["11:59", "12:00"], 9),
        (Missed.RUN_ONCE, ["12:00"], 10),
        (Missed.CATCH_UP, ["11:57", "11:58", "11:59", "12:00"], 7),
    ],
)
def test_missed_ticks_are_treated_as_the_schedule_says(
    missed: Missed, run: list[str], passed_over: int
) -> None:
    now = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)
    owed = SimpleNamespace(
        missed=missed, catch_up_limit=4, next_at=datetime(2026, 11, 21, 11, 50, tzinfo=UTC)
    )
    to_run, passed = running.choose_ticks(Cron(expression=EVERY_MINUTE, time_zone="UTC"), owed, now)
    assert ([tick.strftime("%H:%M") for tick in to_run], passed) == (run, passed_over)


def test_tick_hidden_by_a_half_hour_clock_change_is_run() -> None:
    cron = Cron(expression="30 */2 * * *", time_zone="Australia/Lord_Howe")
    tick = datetime(2026, 4, 4, 13, 30, tzinfo=UTC)
    owed = SimpleNamespace(missed=Missed.SKIP, catch_up_limit=1, next_at=tick)
    assert running.choose_ticks(cron, owed, tick + timedelta(seconds=2)) == ([tick], 0)


def test_ticks_long_missed_are_run_or_dropped_and_counted(agents: Agents, scheduler: Scheduler) -> None:
    hourly = f"{(datetime.now(UTC) - timedelta(minutes=30)).minute} * * * *"
    made = {missed: schedule(agents, cron=hourly, missed=missed, catch_up_limit=2) for missed in Missed}
    for one in made.values():
        owe(agents, one, 5 * 60)
    run_due_schedules(scheduler)
    assert {missed: states(agents, one) for missed, one in made.items()} == {
        Missed.SKIP: [("skipped", 5)],
        Missed.RUN_ONCE: [("started", 5)],
        Missed.CATCH_UP: [("started", 4), ("started", 0)],
    }


def test_a_year_of_missed_minutes_is_no_work(agents: Agents, scheduler: Scheduler) -> None:
    made = schedule(agents, cron=EVERY_MINUTE, missed=Missed.RUN_ONCE)
    owe(agents, made, 365 * 24 * 60)
    run_due_schedules(scheduler)
    assert states(agents, made) == [("started", running.COUNTED - 1)]


def _disable_deployment(agents: Agents) -> None:
    agents.set(
        "UPDATE deployments SET disabled_at = now() WHERE id = :id", id=agents.deployment.deployment.id
    )


def _disable_daemon(agents: Agents) -> None:
    daemon_id = agents.deployment.deployment.daemon_identity_id
    agents.set("UPDATE identities SET disabled_at = now() WHERE id = :id", id=daemon_id)


def _suspend(agents: Agents) -> None:
    agents.set("UPDATE organizations SET suspended_at = now() WHERE id = :id", id=agents.organization_id)


def _take_permissions(agents: Agents) -> None:
    daemon_id = agents.deployment.deployment.daemon_identity_id
    agents.set("DELETE FROM role_bindings WHERE subject_identity_id = :id", id=daemon_id)


@pytest.mark.parametrize(
    ("happen", "code"),
    [
        (_disable_deployment, "agent_not_found"),
        (_disable_daemon, "agent_not_found"),
        (_suspend, "agent_unavailable"),
        (_take_permissions, "permission_denied"),
    ],
)
def test_tick_that_the_agent_cannot_accept_is_refused_and_not_retried(
    agents: Agents, scheduler: Scheduler, happen: Any, code: str
) -> None:
    made = schedule(agents)
    owe(agents, made, 0)
    happen(agents)
    assert run_due_schedules(scheduler) == 1
    (run,) = runs(agents, made)
    assert (run.state.value, run.code, run.task_id) == ("refused", code, None)
    assert run_due_schedules(scheduler) == 0
    assert (
        agents.rows("SELECT 1 FROM tasks WHERE deployment_id = :id", id=agents.deployment.deployment.id) == []
    )


def test_a_principal_that_was_disabled_receives_nothing(agents: Agents, scheduler: Scheduler) -> None:
    principal = agents.identity.principal(agents.organization_id)
    made = schedule(agents, principal_identity_id=principal.id)
    agents.set("UPDATE identities SET disabled_at = now() WHERE id = :id", id=principal.id)
    owe(agents, made, 0)
    run_due_schedules(scheduler)
    assert runs(agents, made)[0].code == "agent_unavailable"


def test_one_schedule_that_breaks_holds_up_no_other(
    agents: Agents, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = schedule(agents), schedule(agents)
    owe(agents, broken, 1)
    owe(agents, sound, 0)
    agents.set("UPDATE schedules SET message = '{\"parts\": []}' WHERE id = :id", id=broken.id)
    run_due_schedules(scheduler)
    assert {run.code for run in runs(agents, broken)} == {"internal_error"}
    assert states(agents, sound) == [("started", 0)]


def test_a_database_that_goes_away_lets_the_tick_come_again(
    agents: Agents, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = schedule(agents)
    owe(agents, made, 0)

    def go_away(*_: object) -> UUID:
        raise ServiceUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(running, "_send", go_away)
        with pytest.raises(ServiceUnavailable):
            run_due_schedules(scheduler)
    assert runs(agents, made) == []
    assert run_due_schedules(scheduler) == 1
    assert states(agents, made) == [("started", 0)]


def test_a_clock_that_was_put_back_repeats_no_tick(agents: Agents, scheduler: Scheduler) -> None:
    made = schedule(agents)
    owe(agents, made, 0)
    run_due_schedules(scheduler)
    ran = "SELECT max(tick_at) FROM schedule_runs WHERE schedule_id = schedules.id"
    agents.set(f"UPDATE schedules SET next_at = ({ran}) WHERE id = :id", id=made.id)
    assert run_due_schedules(scheduler) == 1
    assert len(runs(agents, made)) <= 2
    ticks = [run.tick_at for run in runs(agents, made)]
    assert len(set(ticks)) == len(ticks)


def test_a_schedule_rests_and_goes_on(agents: Agents, scheduler: Scheduler) -> None:
    made = schedule(agents, missed=Missed.CATCH_UP)
    with agents.database.transaction() as session:
        resting = disable_schedule(session, **of(agents, made))
    assert (resting.next_at, resting.disabled_at is not None) == (None, True)
    assert run_due_schedules(scheduler) == 0
    with agents.database.transaction() as session:
        going = enable_schedule(session, **of(agents, made))
    assert going.disabled_at is None
    assert going.next_at is not None
    assert going.next_at > datetime.now(UTC)


def test_a_schedule_is_replaced_and_deleted_with_its_runs(agents: Agents, scheduler: Scheduler) -> None:
    made = schedule(agents)
    owe(agents, made, 0)
    run_due_schedules(scheduler)
    with agents.database.transaction() as session:
        changed = replace_schedule(
            session, **of(agents, made), draft=draft(name="other", cron="0 9 * * *", time_zone="Asia/Tokyo")
        )
    assert (changed.name, changed.next_at and changed.next_at.hour) == ("other", 0)
    with agents.database.transaction() as session:
        delete_schedule(session, **of(agents, made))
    assert agents.rows("SELECT 1 FROM schedule_runs WHERE schedule_id = :id", id=made.id) == []


def test_runs_of_long_ago_are_forgotten(
    agents: Agents, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "KEPT_RUNS", 3)
    made = schedule(agents, cron=EVERY_MINUTE, missed=Missed.CATCH_UP, catch_up_limit=7)
    owe(agents, made, 20)
    run_due_schedules(scheduler)
    assert len(runs(agents, made)) == 3
