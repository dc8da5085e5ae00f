"""Errors that the script of a scripted agent returns for the first message of a task."""

from pathlib import Path

from shared.a2a.behaviors.script_parser import Script, ScriptFile, ScriptInvalid, script_of
from shared.a2a.behaviors.scripted_errors import find_refusal
from shared.a2a.types import Message
from shared.a2a.updates import BehaviorKind, BehaviorSettings


class ScriptErrors:
    """The scripts of agents. Web processes and workers read the same scripts."""

    def __init__(self, path: Path | None) -> None:
        self._file = ScriptFile(path) if path is not None else None

    def check(self, behavior: BehaviorSettings, message: Message) -> None:
        """Raise the script's error for this message, if it has one.

        If the script is invalid, raises nothing: a worker reports the invalid script.
        """
        if behavior.kind is not BehaviorKind.SCRIPT or message.task_id:
            return
        try:
            script = self._script(behavior)
        except ScriptInvalid:
            return
        refusal = find_refusal(script, message) if script is not None else None
        if refusal is not None:
            raise refusal

    def _script(self, behavior: BehaviorSettings) -> Script | None:
        if behavior.script is not None:
            return script_of(behavior.script)
        return self._file.current() if self._file is not None else None
