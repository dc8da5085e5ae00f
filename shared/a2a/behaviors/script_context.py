"""The context of a script's step: the message that it answers, and the values of placeholders.

`${text}`, `${message_id}`, `${task_id}`, `${context_id}`, `${n}` and the groups of a rule's expression (`${1}`,
`${name}`) may stand in any text of a step; `$${` writes `${`. An unknown name is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import regex

from shared.a2a.behaviors.script_schema import MatchTable, RuleTable
from shared.a2a.types import Message
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

REGEX_TIMEOUT_SECONDS = 0.1
MAX_SEARCHED_CHARACTERS = 100_000
_PLACEHOLDER = re.compile(r"\$(\$\{)|\$\{([A-Za-z0-9_]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptContext:
    """The message that is answered, and the values of placeholders."""

    task_id: UUID
    context_id: str
    message: Message
    placeholders: Mapping[str, str] = field(default_factory=dict)

    def with_message(self, message: Message) -> ScriptContext:
        """Return the context for another message of the task."""
        return replace(self, message=message)

    def with_repetition(self, n: int) -> ScriptContext:
        """Return the context of the n-th repetition."""
        return replace(self, placeholders={**self.placeholders, "n": str(n)})

    def fill(self, value: Any) -> Any:
        """Return the value with the placeholders in all its texts replaced."""
        if isinstance(value, str):
            return _PLACEHOLDER.sub(self._substitute, value) if "$" in value else value
        if isinstance(value, dict):
            return {self.fill(name): self.fill(member) for name, member in value.items()}
        return [self.fill(item) for item in value] if isinstance(value, list) else value

    def _substitute(self, place: re.Match[str]) -> str:
        if place[1]:
            return "${"
        value = self.placeholders.get(place[2], self._of_message(place[2]))
        return place[0] if value is None else value

    def _of_message(self, name: str) -> str | None:
        match name:
            case "text":
                return text_of(self.message)
            case "message_id":
                return self.message.message_id
            case "task_id":
                return str(self.task_id)
            case "context_id":
                return self.context_id
        return None


def text_of(message: Message) -> str:
    """Return the text of a message: its text parts, joined by line breaks."""
    return "\n".join(part.text for part in message.parts if part.text is not None)


def find_rule(rules: Sequence[RuleTable], context: ScriptContext) -> tuple[RuleTable, ScriptContext] | None:
    """Return the first rule that matches the context's message, and the context with its groups; or None."""
    for rule in rules:
        placeholders = _match(rule.match, context.message)
        if placeholders is not None:
            return rule, replace(context, placeholders={**context.placeholders, **placeholders})
    return None


def _match(match: MatchTable | None, message: Message) -> Mapping[str, str] | None:
    """Return the groups of the rule's expression (empty without one), or None if the message does not match."""
    if match is None:
        return {}
    if not message.message_id.startswith(match.message_id_prefix or ""):
        return None
    text = text_of(message).strip()
    fold = str.casefold if match.ignore_case else str
    if match.text is not None and fold(text) != fold(match.text.strip()):
        return None
    if match.contains is not None and fold(match.contains) not in fold(text):
        return None
    return _search(match, text) if match.regex is not None else {}


def _search(match: MatchTable, text: str) -> Mapping[str, str] | None:
    """Search with a time limit: the script's author writes the expression, but any client writes the text."""
    flags = regex.IGNORECASE if match.ignore_case else 0
    try:
        found = regex.search(
            match.regex or "",
            # Limits the search in addition to the timeout.
            text[:MAX_SEARCHED_CHARACTERS],
            flags=flags,
            timeout=REGEX_TIMEOUT_SECONDS,
            # Releases the GIL, so a slow expression does not stop the other turns of this process.
            concurrent=True,
        )
    except TimeoutError:
        log.warning("script.expression_too_slow", expression=match.regex)
        return None
    if found is None:
        return None
    # A group that took no part in the match is None, and fills in as an empty text.
    numbered = {str(number): found[number] or "" for number in range(len(found.groups()) + 1)}
    return numbered | {name: value or "" for name, value in found.groupdict().items()}
