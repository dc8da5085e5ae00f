"""Play a script: yield the steps for a message in order, also across questions to the client.

A script stores no state. The earlier messages of a task are replayed without writing updates, up to the question that
the newest message answers. So any worker can continue a task after the death of another worker.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from shared.a2a.behaviors.script_context import ScriptContext, find_rule
from shared.a2a.behaviors.script_schema import ArtifactTable, ContentTable, EchoTable, RuleTable, StepTable
from shared.a2a.behaviors.script_updates import UpdateFactory
from shared.a2a.types import Message, TaskState
from shared.a2a.updates import Update
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
    """Wait for `seconds`. If `seconds` is None, wait until the turn is stopped."""

    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """Emit an update. The update is built only when it is due, because `make` may store a file."""

    make: Callable[[UpdateFactory], Update]
    is_question: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTurn:
    """End the turn without another update."""


class ScriptedCrash(Exception):
    """The script's `crash` step: the behavior fails."""


class ScriptedError(DomainError):
    """The script answers this message with an error, which only a request can be answered with, and not a task."""

    code = "scripted_error"


Step: TypeAlias = Pause | Emission | EndTurn
Plan: TypeAlias = Generator[Step, Message, ScriptContext]


def play(rules: Sequence[RuleTable], messages: Sequence[Message], context: ScriptContext) -> Iterator[Step]:
    """Yield the steps for the last message of a task. Earlier turns have answered the other messages."""
    plan = _answer(rules, context)
    try:
        step = next(plan)
        # Replay the earlier messages: earlier turns have written their updates, so skip these steps without building
        # the updates.
        for message in messages[1:]:
            while not (isinstance(step, Emission) and step.is_question):
                step = next(plan)
            step = plan.send(message)
    except StopIteration:
        # The script was changed and has no further step for this task, so start the script with the last message.
        plan = _answer(rules, context.with_message(messages[-1]))
        step = next(plan)
    yield step
    yield from plan


def _answer(rules: Sequence[RuleTable], context: ScriptContext) -> Plan:
    found = find_rule(rules, context)
    if found is None:
        yield _status("reject", _UNMATCHED, context)
        return context
    rule, context = found
    context = yield from _steps(rule.steps, context, count(1))
    yield _status("complete", ContentTable(), context)
    return context


def _steps(steps: Sequence[StepTable], context: ScriptContext, artifact_numbers: Iterator[int]) -> Plan:
    for step in steps:
        context = yield from _step(step, context, artifact_numbers)
    return context


def _step(step: StepTable, context: ScriptContext, artifact_numbers: Iterator[int]) -> Plan:
    """Play one step. `artifact_numbers` numbers the artifacts without an id, across the whole task."""
    if step.repeat is not None:
        for n in range(1, step.repeat.times + 1):
            context = yield from _steps(step.repeat.steps, context.with_repetition(n), artifact_numbers)
    elif step.input_required is not None or step.auth_required is not None:
        context = yield from _ask(step, context, artifact_numbers)
    elif step.artifact is not None:
        yield from _artifact(step.artifact, context, artifact_numbers)
    elif step.echo is not None:
        yield _echo(step.echo, context, artifact_numbers)
    else:
        yield _simple(step, context)
    return context


def _ask(step: StepTable, context: ScriptContext, artifact_numbers: Iterator[int]) -> Plan:
    ask = step.input_required or step.auth_required
    assert ask is not None  # noqa: S101 (one of them is what the step does)
    question = _status(step.verb, ask, context)
    reply = yield Emission(make=question.make, is_question=True)
    context = context.with_message(reply)
    found = find_rule(ask.then or (), context)
    if found is not None:
        rule, context = found
        context = yield from _steps(rule.steps, context, artifact_numbers)
    return context


def _artifact(
    table: ArtifactTable, context: ScriptContext, artifact_numbers: Iterator[int]
) -> Iterator[Step]:
    artifact_id = context.fill(table.id) if table.id is not None else f"artifact-{next(artifact_numbers)}"
    if table.chunks is None:
        yield Emission(make=lambda factory: factory.artifact(table, context, artifact_id))
        return
    for index in range(len(table.chunks)):
        if index and table.every:
            yield Pause(seconds=table.every)
        # Call a function and create no lambda here: a lambda would use the loop's last index when it is called later.
        yield _chunk(table, index, context, artifact_id)


def _chunk(table: ArtifactTable, index: int, context: ScriptContext, artifact_id: str) -> Emission:
    return Emission(make=lambda factory: factory.chunk(table, index, context, artifact_id))


def _echo(table: EchoTable, context: ScriptContext, artifact_numbers: Iterator[int]) -> Emission:
    if table.form == "artifact":
        artifact_id = context.fill(table.id) if table.id is not None else f"artifact-{next(artifact_numbers)}"
        return Emission(make=lambda factory: factory.echoed_artifact(context, artifact_id))
    if table.form == "message":
        return Emission(make=lambda factory: factory.echoed_reply(context))
    state = TaskState.COMPLETED if table.form == "complete" else TaskState.WORKING
    return Emission(make=lambda factory: factory.echoed_status(state, context))


def _simple(step: StepTable, context: ScriptContext) -> Step:
    if step.delay is not None or step.hang:
        return Pause(seconds=step.delay)
    if step.silence:
        return EndTurn()
    if step.crash:
        return Emission(make=_crash)
    if step.error is not None:
        return Emission(make=_refuse)
    if step.message is not None:
        message = step.message
        return Emission(make=lambda factory: factory.reply(message, context))
    content: ContentTable = getattr(step, step.verb)
    return _status(step.verb, content, context)


def _status(verb: str, content: ContentTable, context: ScriptContext) -> Emission:
    return Emission(make=lambda factory: factory.status(_STATES[verb], content, context))


def _crash(_: UpdateFactory) -> Update:
    raise ScriptedCrash


def _refuse(_: UpdateFactory) -> Update:
    raise ScriptedError
