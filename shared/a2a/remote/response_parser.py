"""Parse the responses of an agent's server: JSON of the protocol, of limited depth. Numbers keep all their digits.

An event may lack its ids, because only the ids of the first event are used. References to other tasks are removed.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from shared.a2a.exact_json import parse
from shared.a2a.remote.errors import ResponseInvalid
from shared.a2a.types import Message, MessageRole, StreamResponse, Task
from shared.a2a.wire import A2A

# Limits the depth of a document, because a deeper document would exhaust the stack when it is written again.
MAXIMUM_DEPTH = 64
# The models require ids, so this value replaces an id that an event lacks.
_ABSENT = "-"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_EVENTS = ("statusUpdate", "artifactUpdate", "status_update", "artifact_update")
Shape = TypeVar("Shape", bound=A2A)


def read_document(raw: bytes) -> Any:
    """Parse JSON. Raises ResponseInvalid."""
    try:
        document = parse(raw)
    except (ValueError, RecursionError):
        raise ResponseInvalid from None
    if _is_deeper(document, MAXIMUM_DEPTH) or (_SURROGATE.search(raw) and not _is_storable(document)):
        raise ResponseInvalid
    return document


def read_event(result: Any) -> StreamResponse:
    """Return a stream's event: exactly one of a task, a message and an update. Raises ResponseInvalid."""
    if isinstance(result, dict):
        result = {name: _with_ids(member) if name in _EVENTS else member for name, member in result.items()}
    event = _read(StreamResponse, result)
    if sum(getattr(event, name) is not None for name in type(event).model_fields) != 1:
        raise ResponseInvalid
    return event


def read_task(result: Any) -> Task:
    """Return a task. Raises ResponseInvalid."""
    return _read(Task, result)


def read_tasks(result: Any) -> list[Task]:
    """Return the tasks of a page. Raises ResponseInvalid."""
    listed = result.get("tasks", []) if isinstance(result, dict) else None
    if not isinstance(listed, list):
        raise ResponseInvalid
    return [read_task(task) for task in listed]


def ids_of(event: StreamResponse) -> tuple[str, str | None] | None:
    """Return the task id and the context id of an event, or None if the event has no task id."""
    if event.task is not None:
        return event.task.id, event.task.context_id or None
    update = event.status_update or event.artifact_update
    if update is None or update.task_id == _ABSENT:
        return None
    return update.task_id, None if update.context_id == _ABSENT else update.context_id


def agents_message(message: Message) -> Message:
    """Return a message with the agent's role and without references to tasks that exist only at the agent."""
    return message.model_copy(update={"role": MessageRole.AGENT, "reference_task_ids": ()})


def _with_ids(update: Any) -> Any:
    if not isinstance(update, Mapping):
        return update
    task_id = update.get("taskId") or update.get("task_id") or _ABSENT
    context_id = update.get("contextId") or update.get("context_id") or _ABSENT
    return {**update, "taskId": task_id, "contextId": context_id}


def _read(shape: type[Shape], value: Any) -> Shape:
    try:
        return shape.model_validate(value)
    except (ValidationError, RecursionError):
        raise ResponseInvalid from None


def _is_deeper(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        return levels == 0 or any(_is_deeper(member, levels - 1) for member in value.values())
    if isinstance(value, list):
        return levels == 0 or any(_is_deeper(item, levels - 1) for item in value)
    return False


def _is_storable(value: Any) -> bool:
    """Return whether PostgreSQL can store a value: no text in the value contains half of a surrogate pair."""
    if isinstance(value, dict):
        return all(_is_storable(name) and _is_storable(member) for name, member in value.items())
    if isinstance(value, list):
        return all(map(_is_storable, value))
    return not isinstance(value, str) or not any("\ud800" <= character <= "\udfff" for character in value)
