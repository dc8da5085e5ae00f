"""The script of a scripted reply: lines of the last user text that begin with `!`, each with one directive.

README.md lists the directives. The reply repeats all other lines.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from shared.models.dialects.requests import Dialect

MAX_TOKENS = 100_000
MAX_MILLISECONDS = 600_000
_PIECE = re.compile(r"\s*\S+")
_RESULTS = ("tool", "function_call_output")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a function in the reply; `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A scripted reply. The fields `…_after` count the text pieces before a failure; None means no failure."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    is_refusal: bool = False
    wait_seconds: float = 0.0
    delay_seconds: float = 0.0
    fail_status: int | None = None
    retry_after: str | None = None
    fail_after: int | None = None
    break_after: int | None = None
    end_after: int | None = None
    stall_after: int | None = None
    reports_usage: bool = True
    is_truncated: bool = False
    prompt_tokens: int = 0

    @property
    def pieces(self) -> list[str]:
        """The text in pieces of one word each; a piece counts as one token."""
        return _PIECE.findall(self.text)

    @property
    def completion_tokens(self) -> int:
        """The number of words in the reply, including reasoning and tool calls."""
        calls = sum(1 + len(call.arguments.split()) for call in self.tool_calls)
        return len(self.pieces) + self.reasoning_tokens + calls

    @property
    def reasoning_tokens(self) -> int:
        """The number of words in the reasoning."""
        return len(self.reasoning.split())


def read_script(dialect: Dialect, body: Mapping[str, Any]) -> Script:
    """Return the script of the reply to a request of either dialect."""
    texts = list(_chat_texts(body) if dialect is Dialect.CHAT else _responses_texts(body))
    last_user_text = next((text for role, text in reversed(texts) if role == "user"), "")
    script = Script(prompt_tokens=max(1, sum(len(text.split()) for _, text in texts)))
    text_lines = []
    for line in last_user_text.split("\n"):
        changed = _apply_directive(script, line)
        if changed is None:
            text_lines.append(line)
        else:
            script = changed
    results = _results(texts)
    if results:
        # Call no tool again: an agent framework sends the tools' results with the same user text, and would otherwise
        # call the tools forever.
        script = replace(script, tool_calls=())
    if not (script.text or script.tool_calls):
        script = replace(script, text=_reply(text_lines, results))
    return _limited(script, body)


def _results(texts: Sequence[tuple[str, str]]) -> list[str]:
    """Return the tools' results since the last user text."""
    since = takewhile(lambda text: text[0] != "user", reversed(texts))
    return [text for role, text in since if role in _RESULTS][::-1]


def _reply(text_lines: Sequence[str], results: Sequence[str]) -> str:
    if results:
        return f"The tool said: {' '.join(results)}"
    return f"You said: {' '.join(text_lines).strip() or 'nothing'}"


def _apply_directive(script: Script, line: str) -> Script | None:
    """Return the script changed by the directive in this line, or None if the line is not a valid directive."""
    name, _, argument = line.strip().partition(" ")
    directive = _DIRECTIVES.get(name)
    try:
        return directive(script, argument.strip()) if directive else None
    except ValueError:
        return None


def _limited(script: Script, body: Mapping[str, Any]) -> Script:
    for field in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        limit = body.get(field)
        if isinstance(limit, int) and 0 < limit < len(script.pieces):
            script = replace(script, text="".join(script.pieces[:limit]), is_truncated=True)
    return script


def _number(text: str, most: int) -> int:
    number = int(text)
    if not 0 <= number <= most:
        raise ValueError
    return number


def _milliseconds(text: str) -> float:
    return _number(text, MAX_MILLISECONDS) / 1000


def _after(text: str) -> int:
    return _number(text.removeprefix("after ").strip() or "0", MAX_TOKENS)


def _fail(script: Script, argument: str) -> Script:
    """Apply `!fail` with the argument `500`, `500 after 3` or `429 retry-after 7`."""
    status, _, rest = argument.partition(" ")
    if rest.startswith("after "):
        return replace(script, fail_after=_after(rest))
    retry_after = rest.removeprefix("retry-after ").strip() or None
    return replace(script, fail_status=_number(status, 599), retry_after=retry_after)


def _tool(script: Script, argument: str) -> Script:
    name, _, arguments = argument.partition(" ")
    if not name:
        raise ValueError
    call = ToolCall(name=name, arguments=arguments.strip() or "{}")
    return replace(script, tool_calls=(*script.tool_calls, call))


def _tokens(script: Script, argument: str) -> Script:
    return replace(script, text=" ".join(f"word{number}" for number in range(_number(argument, MAX_TOKENS))))


_DIRECTIVES: Mapping[str, Callable[[Script, str], Script]] = {
    "!say": lambda script, text: replace(script, text=text),
    "!json": lambda script, text: replace(script, text=text or '{"reply": "scripted"}'),
    "!tokens": _tokens,
    "!think": lambda script, text: replace(script, reasoning=text),
    "!refuse": lambda script, text: replace(script, text=text or "I cannot help with that.", is_refusal=True),
    "!tool": _tool,
    "!length": lambda script, _: replace(script, is_truncated=True),
    "!no-usage": lambda script, _: replace(script, reports_usage=False),
    "!wait": lambda script, text: replace(script, wait_seconds=_milliseconds(text)),
    "!delay": lambda script, text: replace(script, delay_seconds=_milliseconds(text)),
    "!fail": _fail,
    "!break": lambda script, text: replace(script, break_after=_after(text)),
    "!end": lambda script, text: replace(script, end_after=_after(text)),
    "!stall": lambda script, text: replace(script, stall_after=_after(text)),
}


def _chat_texts(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for message in body.get("messages") or ():
        yield str(message.get("role")), _text_of(message.get("content"))


def _responses_texts(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "system", str(body.get("instructions") or "")
    given = body.get("input")
    if isinstance(given, str):
        yield "user", given
        return
    for item in given or ():
        yield str(item.get("role") or item.get("type")), _text_of(item.get("content") or item.get("output"))


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and "text" in part)
