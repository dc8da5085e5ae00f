"""Playing a script: the steps for a message, one after the other, through questions and what follows them.

A script remembers nothing: a task's messages are played again from the first, without doing any of it, up to the
question that the newest message answers. So any worker can go on after a death.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from shared.a2a.agent_turns.updates import Update
from shared.a2a.behaviors.script_content import Stage
from shared.a2a.behaviors.script_scene import Scene, find_rule
from shared.a2a.behaviors.script_schema import ArtifactTable, ContentTable, EchoTable, RuleTable, StepTable
from shared.a2a.types import Message, TaskState
from shared.errors import DomainError

_STATES = {
    "status": TaskState.WORKING,
    "input_required": TaskState.INPUT_REQUIRED,
    "auth_required": TaskState.AUTH_REQUIRED,
    "complete": TaskState.COMPLETED,
    "fail": TaskState.FAILED,
    "reject": TaskState.REJECTED,
    "cancel": TaskState.CANCELED,
}
_UNMATCHED = ContentTable(text="The script has no rule for this message.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Wait; None is for ever."""

    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cue:
    """Say something; made only when it is its turn, because making it may store a file."""

    make: Callable[[Stage], Update]
    is_question: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """End the turn here."""


class ScriptedCrash(Exception):
    """The script says to break down."""


class ScriptedError(DomainError):
    """The script answers this message with an error, which only a request can be answered with, and not a task."""

    code = "scripted_error"


Step: TypeAlias = Pause | Cue | Silence
Plan: TypeAlias = Generator[Step, Message, Scene]


def play(rules: Sequence[RuleTable], messages: Sequence[Message], scene: Scene) -> Iterator[Step]:
    """Give what is done about the last of a task's messages, the others having been answered before."""
    plan = _answer(rules, scene)
    try:
        step = next(plan)
        for message in messages[1:]:
            while not (isinstance(step, Cue) and step.is_question):
                step = next(plan)
            step = plan.send(message)
    except StopIteration:
        # The script was changed meanwhile and has nothing more to say to this task.
        plan = _answer(rules, scene.hearing(messages[-1]))
        step = next(plan)
    yield step
    yield from plan


def _answer(rules: Sequence[RuleTable], scene: Scene) -> Plan:
    found = find_rule(rules, scene)
    if found is None:
        yield _status("reject", _UNMATCHED, scene)
        return scene
    rule, scene = found
    scene = yield from _steps(rule.steps, scene, count(1))
    yield _status("complete", ContentTable(), scene)
    return scene


def _steps(steps: Sequence[StepTable], scene: Scene, numbers: Iterator[int]) -> Plan:
    for step in steps:
        scene = yield from _step(step, scene, numbers)
    return scene


def _step(step: StepTable, scene: Scene, numbers: Iterator[int]) -> Plan:
    """Do one step; `numbers` are those of artifacts without an id, counted through the whole task."""
    if step.repeat is not None:
        for n in range(1, step.repeat.times + 1):
            scene = yield from _steps(step.repeat.steps, scene.counting(n), numbers)
    elif step.input_required is not None or step.auth_required is not None:
        scene = yield from _ask(step, scene, numbers)
    elif step.artifact is not None:
        yield from _artifact(step.artifact, scene, numbers)
    elif step.echo is not None:
        yield _echo(step.echo, scene, numbers)
    else:
        yield _simple(step, scene)
    return scene


def _ask(step: StepTable, scene: Scene, numbers: Iterator[int]) -> Plan:
    ask = step.input_required or step.auth_required
    assert ask is not None  # noqa: S101 (one of them is what the step does)
    question = _status(step.verb, ask, scene)
    heard = yield Cue(make=question.make, is_question=True)
    scene = scene.hearing(heard)
    found = find_rule(ask.then or (), scene)
    if found is not None:
        rule, scene = found
        scene = yield from _steps(rule.steps, scene, numbers)
    return scene


def _artifact(table: ArtifactTable, scene: Scene, numbers: Iterator[int]) -> Iterator[Step]:
    artifact_id = scene.fill(table.id) if table.id is not None else f"artifact-{next(numbers)}"
    if table.chunks is None:
        yield Cue(make=lambda stage: stage.artifact(table, scene, artifact_id))
        return
    for index in range(len(table.chunks)):
        if index and table.every:
            yield Pause(seconds=table.every)
        yield _chunk(table, index, scene, artifact_id)


def _chunk(table: ArtifactTable, index: int, scene: Scene, artifact_id: str) -> Cue:
    return Cue(make=lambda stage: stage.chunk(table, index, scene, artifact_id))


def _echo(table: EchoTable, scene: Scene, numbers: Iterator[int]) -> Cue:
    if table.form == "artifact":
        artifact_id = scene.fill(table.id) if table.id is not None else f"artifact-{next(numbers)}"
        return Cue(make=lambda stage: stage.echoed_artifact(scene, artifact_id))
    if table.form == "message":
        return Cue(make=lambda stage: stage.echoed_reply(scene))
    state = TaskState.COMPLETED if table.form == "complete" else TaskState.WORKING
    return Cue(make=lambda stage: stage.echoed_status(state, scene))


def _simple(step: StepTable, scene: Scene) -> Step:
    if step.delay is not None or step.hang:
        return Pause(seconds=step.delay)
    if step.silence:
        return Silence()
    if step.crash:
        return Cue(make=_crash)
    if step.error is not None:
        return Cue(make=_refuse)
    if step.message is not None:
        said = step.message
        return Cue(make=lambda stage: stage.reply(said, scene))
    content: ContentTable = getattr(step, step.verb)
    return _status(step.verb, content, scene)


def _status(verb: str, content: ContentTable, scene: Scene) -> Cue:
    return Cue(make=lambda stage: stage.status(_STATES[verb], content, scene))


def _crash(_: Stage) -> Update:
    raise ScriptedCrash


def _refuse(_: Stage) -> Update:
    raise ScriptedError
