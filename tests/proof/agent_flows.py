"""Flows of agents: a message until the end of its turn, schedules, inbound messages, and imports of media."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID, uuid4, uuid5

from werkzeug.test import TestResponse

from shared.a2a.agent_turns.lost_turns import sweep_turns
from shared.a2a.exact_json import parse
from shared.a2a.updates import BehaviorKind
from shared.errors import ServiceUnavailable
from tests.proof.file_flows import PLACE, job
from tests.proof.flows import Actor, Flow, State, Step
from tests.proof.world import World
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import content, status
from tests.support.files.file_requests import succeed
from tests.web.a2a.asking import read_events, request
from tests.web.a2a.conftest import give_behavior_to
from tests.web.inbound.conftest import DistributionClient, make_distribution_client
from tests.web.media.conftest import Connector, make_connector, media

SCRIPT = """
rules:
  - steps:
      - status: Reading
      - artifact: {id: a, name: report, chunks: ["Once ", "upon ", "a time"]}
      - artifact: {id: b, file: {name: report.txt, text: "the report"}}
      - complete: Done
"""
WORDS = "four byte text here"
ENDS = {f"TASK_STATE_{end}" for end in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")}
TURNS = 4
"""The maximum number of workers that may leave a turn unfinished in a test."""
_UNANSWERED = "SELECT id FROM task_turns WHERE state <> 'done' LIMIT 1"


def _scripted(world: World) -> UUID:
    return _agent(world, script=SCRIPT)


def _asking_a_model(world: World) -> UUID:
    return _agent(world, script=None, kind=BehaviorKind.MODEL, model="scripted/echo")


def _agent(world: World, **draft: Any) -> UUID:
    made = world.front.identity.deployment(world.organization_id).deployment
    give_behavior_to(world.front, made.id, input_modes=("*/*",), **draft)
    return made.id


def _message(agent: Callable[[World], UUID], world: World) -> State:
    """A message for an agent."""
    said = request(f"!say {WORDS}", configuration={"returnImmediately": True})
    return {"agent": world.once(agent), "said": said, "key": uuid4().hex, "answers": [], "tasks": set()}


def _post(path: str, world: World, state: State) -> TestResponse:
    headers = {"Authorization": world.owner, "Idempotency-Key": state["key"]}
    client = world.front.app.test_client()
    prefix = f"/agents/{state['agent']}"
    return client.post(prefix + path, json=state["said"], headers=headers, buffered=True)


def _send(world: World, state: State) -> TestResponse:
    answer = _post("/message:send", world, state)
    if answer.status_code < 500:
        state["tasks"].add(parse(answer.get_data())["task"]["id"])
    return answer


def _stream(world: World, state: State) -> TestResponse:
    """Send, and read the stream to its end while a worker answers."""
    with ThreadPoolExecutor(1) as client:
        asked = client.submit(_post, "/message:stream", world, state)
        while not asked.done() and not world.sql(_UNANSWERED):
            time.sleep(0.002)
        _answer(world, state)
        answer = asked.result(60)
    if answer.status_code < 500:
        events = list(read_events(answer.text))
        if '"reason":"UNAVAILABLE"' in answer.text:
            raise ServiceUnavailable  # its client sends it again, and gets the stream of the same task
        state["tasks"].add(events[0]["task"]["id"])
        state["answers"].append(events)
    return answer


def _answer(world: World, _state: State) -> None:
    """Run pending turns as workers do.

    If a worker leaves a turn unfinished, the next one takes it over after the lease has expired.
    """
    for _ in range(TURNS):
        if not world.sql(_UNANSWERED):
            return
        world.answer_turn()
        if world.sql(_UNANSWERED):
            world.sql("UPDATE task_turns SET lease_until = now() - interval '1 s' WHERE lease_until > now()")
            sweep_turns(world.database, world.notifier)
    raise AssertionError("nobody could answer the turn")


def _require_answered(world: World, state: State) -> None:
    """Check that one task has each update once, and that the file it links to is stored once."""
    (task_id,) = state["tasks"]
    told = "SELECT CAST(event AS text) FROM task_events WHERE task_id = %(id)s ORDER BY sequence"
    events = [parse(row[0]) for row in world.sql(told, id=task_id)]
    states = [at["statusUpdate"]["status"]["state"] for at in events if "statusUpdate" in at]
    assert states[-1] == "TASK_STATE_COMPLETED"
    assert states.count("TASK_STATE_COMPLETED") == 1, states
    artifacts = [at["artifactUpdate"]["artifact"] for at in events if "artifactUpdate" in at]
    texts = [part["text"] for artifact in artifacts for part in artifact["parts"] if "text" in part]
    assert texts == ["Once ", "upon ", "a time"]
    assert world.sql("SELECT count(*) FROM task_turns WHERE task_id = %(id)s", id=task_id) == [(1,)]
    owned = "SELECT count(*) FROM file_references WHERE reference_id = %(id)s"
    assert world.sql(owned, id=task_id) == [(1,)]
    for stream in state["answers"]:
        last = (stream[-1].get("statusUpdate") or stream[-1]["task"])["status"]
        assert last["state"] == "TASK_STATE_COMPLETED"


def _require_one_call(world: World, state: State) -> None:
    """Check that the model was called once, and the organization charged once for what the task contains."""
    (task_id,) = state["tasks"]
    call_id = _call_of(world, task_id)
    charged = world.sql("SELECT status FROM usage_records WHERE invocation_id = %(id)s", id=call_id)
    assert charged == [("completed",)]
    assert world.asked.count(call_id) == 1
    task = _read(world, state, task_id)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [part["text"] for part in task["artifacts"][0]["parts"]] == [WORDS]


def _call_of(world: World, task_id: str) -> str:
    turn_id = world.sql("SELECT id FROM task_turns WHERE task_id = %(id)s", id=task_id)[0][0]
    return str(uuid5(UUID(str(turn_id)), "invocation"))


def _read(world: World, state: State, task_id: str) -> Any:
    path = f"/agents/{state['agent']}/tasks/{task_id}"
    return parse(world.front.get(path, world.owner).get_data())


def _agree(world: World, state: State) -> None:
    """Check that the task ended once, as clients were told, repeats no update, and called its model at most once."""
    (task_id,) = state["tasks"]
    told = "SELECT CAST(event AS text) FROM task_events WHERE task_id = %(id)s ORDER BY sequence"
    events = [parse(row[0]) for row in world.sql(told, id=task_id)]
    states = [at["statusUpdate"]["status"]["state"] for at in events if "statusUpdate" in at]
    assert [at for at in states if at in ENDS] == states[-1:], states
    cancelled = state.get("visitor")
    if cancelled is not None and cancelled.status_code == 200:
        assert states[-1] == "TASK_STATE_CANCELED"
    assert _read(world, state, task_id)["status"]["state"] == states[-1]
    artifacts = [at["artifactUpdate"]["artifact"] for at in events if "artifactUpdate" in at]
    texts = [part["text"] for artifact in artifacts for part in artifact["parts"] if "text" in part]
    assert any(whole.startswith("".join(texts)) for whole in ("Once upon a time", WORDS)), texts
    assert world.asked.count(_call_of(world, task_id)) <= 1


def _cancel(world: World, state: State) -> None:
    for task_id in state["tasks"]:
        path = f"/agents/{state['agent']}/tasks/{task_id}:cancel"
        state["visitor"] = world.front.app.test_client().post(
            path, headers={"Authorization": world.owner}, json={}
        )


def _take_over(world: World, _: State) -> None:
    """Run the turn on another worker, because the first has stalled for longer than its lease."""
    world.sql("UPDATE task_turns SET lease_until = now() - interval '1 s' WHERE lease_until > now()")
    sweep_turns(world.database, world.notifier)
    world.answer_turn()


def _schedule(world: World) -> State:
    state = _message(_scripted, world)
    body = {
        "name": "Report",
        "cron": "0 9 * * *",
        "message": {"parts": [{"text": "x"}]},
        "missed": "run_once",
    }
    path = f"/admin/deployments/{state['agent']}/schedules"
    made = succeed(world.front.post(path, world.owner, json=body), 201)
    long_ago = (
        "UPDATE schedules SET next_at = date_trunc('hour', now()) - interval '2 days' WHERE id = %(id)s"
    )
    world.sql(long_ago, id=made["id"])
    return state | {"schedule": made["id"]}


def _require_one_run(world: World, state: State) -> None:
    runs = world.sql(
        "SELECT task_id, state FROM schedule_runs WHERE schedule_id = %(id)s", id=state["schedule"]
    )
    assert [run[1].lower() for run in runs] == ["started"]
    _require_answered(world, state | {"tasks": {str(runs[0][0])}})


def _prepare_distribution(world: World) -> State:
    return {
        "distribution": world.once(_make_distribution),
        "message": uuid4().hex,
        "answers": [],
        "tasks": set(),
    }


def _old(world: World) -> State:
    """Create a task that ended long ago."""
    state = _message(_scripted, world)
    _send(world, state)
    _answer(world, state)
    (task_id,) = state["tasks"]
    world.sql("UPDATE tasks SET status_at = status_at - interval '400 d' WHERE id = %(id)s", id=task_id)
    return state


def _require_forgotten(world: World, state: State) -> None:
    (task_id,) = state["tasks"]
    assert world.sql("SELECT 1 FROM tasks WHERE id = %(id)s", id=task_id) == []
    assert world.sql("SELECT 1 FROM file_references WHERE reference_id = %(id)s", id=task_id) == []


def _make_distribution(world: World) -> DistributionClient:
    return make_distribution_client(world.front, SCRIPT)


def _make_connector(world: World) -> Connector:
    return make_connector(world.front)


def _push_message(world: World, state: State) -> TestResponse:
    answer: TestResponse = state["distribution"].push("hello", messageId=state["message"])
    if answer.status_code < 500:
        state["answers"].append(answer)
    return answer


def _require_one_message(world: World, state: State) -> None:
    assert {answer.status_code for answer in state["answers"]} <= {200, 202}
    rows = [row for row in state["distribution"].rows() if row.message_id == state["message"]]
    assert len(rows) == 1
    _require_answered(world, {"tasks": {str(rows[0].task_id)}, "answers": []})


def pushed_media(world: World) -> State:
    connector = world.once(_make_connector)
    path = f"/{uuid4().hex}.png"
    url = world.source.serve(path, content(PNG.content, PNG.media_type))
    return {"connector": connector, "path": path, "media": media(url), "answers": []}


def _missing(world: World) -> State:
    state = pushed_media(world)
    world.source.serve(state["path"], status(410))
    return state


def _require_failed(world: World, state: State) -> None:
    failed = "SELECT state FROM media_imports WHERE message_id = %(message)s"
    assert world.sql(failed, message=state["media"]["messageId"]) == [("Failed",)]


def push_media(world: World, state: State) -> TestResponse:
    answer: TestResponse = state["connector"].push(state["media"])
    if answer.status_code < 500:
        state["answers"].append(answer)
    return answer


def require_one_import(world: World, state: State) -> None:
    connector = state["connector"]
    stored = (
        "SELECT state, file_id FROM media_imports WHERE distribution_id = %(id)s AND message_id = %(message)s"
    )
    (found,) = world.sql(stored, id=connector.id, message=state["media"]["messageId"])
    assert found[0] == "Stored", found
    imported = "SELECT count(*) FROM media_imports WHERE distribution_id = %(id)s AND state = 'Stored'"
    files = "SELECT count(*) FROM files WHERE organization_id = %(id)s"
    assert world.sql(files, id=connector.organization_id) == world.sql(imported, id=connector.id)


ANSWER: Step = _answer
FETCH = job("media.fetch_due")
IMPORTS = ("media.fetch_due", "files.place_staged", "files.collect_doomed", "files.sweep_staging")
CANCEL = Actor(name="cancellation of the task", act=_cancel)
TAKE_OVER = Actor(name="take-over of the turn", act=_take_over)
FLOWS = (
    Flow(
        name="message",
        prepare=partial(_message, _scripted),
        steps=(_send, ANSWER, PLACE),
        require=_require_answered,
        visitors=(CANCEL, TAKE_OVER),
        agree=_agree,
    ),
    Flow(
        name="message, streamed",
        prepare=partial(_message, _scripted),
        steps=(_stream, PLACE),
        require=_require_answered,
    ),
    Flow(
        name="message for a model",
        prepare=partial(_message, _asking_a_model),
        steps=(_send, ANSWER),
        require=_require_one_call,
        visitors=(CANCEL, TAKE_OVER),
        agree=_agree,
    ),
    Flow(
        name="purge of a task",
        prepare=_old,
        steps=(job("agents.purge_tasks"), PLACE),
        require=_require_forgotten,
        sweeps=("agents.purge_tasks",),
    ),
    Flow(
        name="schedule",
        prepare=_schedule,
        steps=(job("schedules.run_due"), ANSWER, PLACE),
        require=_require_one_run,
        sweeps=("schedules.run_due",),
    ),
    Flow(
        name="message through a distribution",
        prepare=_prepare_distribution,
        steps=(_push_message, job("door.route_messages"), ANSWER, PLACE),
        require=_require_one_message,
        sweeps=("door.route_messages",),
    ),
    Flow(
        name="import",
        prepare=pushed_media,
        steps=(push_media, FETCH, PLACE),
        require=require_one_import,
        sweeps=IMPORTS,
    ),
    Flow(
        name="import that fails",
        prepare=_missing,
        steps=(push_media, FETCH),
        require=_require_failed,
        sweeps=IMPORTS,
    ),
)
