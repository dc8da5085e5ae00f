"""The behavior that plays a script, for developers of clients and for tests; no model is needed.

A script defines which updates answer which messages (`README.md`). If the script is invalid, the task fails, and the
message of its status lists the mistakes.
"""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid5

from shared.a2a.behaviors.script_context import ScriptContext
from shared.a2a.behaviors.script_parser import Script, ScriptFile, ScriptInvalid, script_of
from shared.a2a.behaviors.script_player import Emission, EndTurn, play
from shared.a2a.behaviors.script_updates import UpdateFactory
from shared.a2a.behaviors.stored_files import StoredFiles
from shared.a2a.behaviors.turn_cancellation import TurnCancellation
from shared.a2a.types import Message, MessageRole, Part, TaskState
from shared.a2a.updates import BehaviorSettings, StatusChanged, Turn, Update, settles


class ScriptedBehavior:
    """Plays the script of the turn's behavior. If the behavior has no script, it plays the file of `A2A_SCRIPT`."""

    def __init__(self, files: StoredFiles, *, path: Path | None = None) -> None:
        self._files = files
        self._file = ScriptFile(path) if path is not None else None

    def run(self, turn: Turn) -> Iterator[Update]:
        """Play the script for the turn's message, until it ends or the turn is canceled."""
        try:
            script = self._script(turn.behavior)
        except ScriptInvalid as invalid:
            yield _failed(turn, f"The agent's script cannot be used.\n{invalid}")
            return
        # A script has no memory: earlier messages are replayed to find the current step.
        messages = _messages_of(turn)
        context = ScriptContext(task_id=turn.task_id, context_id=turn.context_id, message=messages[0])
        factory = UpdateFactory(turn, self._files)
        cancellation = TurnCancellation(turn)
        for step in play(script.rules, messages, context):
            if isinstance(step, Emission):
                update = step.make(factory)
                yield update
                # Steps after the end of the turn belong to a later message of the task.
                if settles(update):
                    return
            elif isinstance(step, EndTurn) or cancellation.wait(step.seconds):
                return

    def _script(self, settings: BehaviorSettings) -> Script:
        if settings.script is not None:
            return script_of(settings.script)
        if self._file is not None:
            return self._file.current()
        raise ScriptInvalid(["there is none; name a file in A2A_SCRIPT"])


def _messages_of(turn: Turn) -> list[Message]:
    """Return the client's messages in this task, the newest last."""
    if turn.is_first:
        return [turn.message]
    task_id = str(turn.task_id)
    earlier = [
        update for update in turn.history() if update.task_id == task_id and update.role is MessageRole.USER
    ]
    return [*earlier, turn.message]


def _failed(turn: Turn, text: str) -> StatusChanged:
    message = Message(
        message_id=str(uuid5(turn.id, "script-invalid")),
        context_id=turn.context_id,
        task_id=str(turn.task_id),
        role=MessageRole.AGENT,
        parts=(Part(text=text),),
    )
    return StatusChanged(state=TaskState.FAILED, message=message)
