"""Normalize one choice of a chat stream, because upstreams deviate from OpenAI's format.

A normalized choice has its role once, an index in every chunk, a known finish reason, and well-formed tool calls. The
chat stream sends normalized choices; the streams of other dialects build their events from normalized choices.

The official client joins fragments of tool calls by `index` and concatenates every string, including ids and names. So
each id and name is sent once, and the calls are numbered 0, 1, 2 and so on. Upstreams number calls from one, use index
0 for all calls, omit the index or id, repeat the name, or send a whole call in one fragment.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from shared.credits.prices import TokenCounts
from shared.models.dialects.requests import Json, object_or_empty
from shared.models.dialects.token_counts import read_usage, utf8_size

_KNOWN_FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
_OTHER_FINISHES = {
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "MAX_TOKENS": "length",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
    "safety": "content_filter",
    "SAFETY": "content_filter",
    "refusal": "content_filter",
}
_TEXT_FIELDS = ("content", "refusal", "reasoning_content", "reasoning")
_PLAIN_FIELDS = frozenset({"role", *_TEXT_FIELDS})
_KINDS = {"function": "arguments", "custom": "input"}


class ChatChoice:
    """The state of one choice. `size_bytes` counts the model's output, including arguments and reasoning."""

    __slots__ = ("_numbered", "finish_reason", "has_role", "size_bytes", "tool_calls")

    def __init__(self, call_id_prefix: str) -> None:
        self.has_role = False
        self.finish_reason: str | None = None
        self.size_bytes = 0
        self.tool_calls = ToolCalls(call_id_prefix)
        self._numbered: dict[str, int] = {}

    def read(self, choice: Json) -> Json | None:
        """Normalize one choice of one chunk, in place where possible. Return None if the choice adds nothing."""
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            # Read `message` instead of `delta`: the upstream sent a whole completion.
            delta = object_or_empty(choice.pop("message", None))
        choice["delta"] = delta
        self._read_role(delta)
        for name in delta.keys() - _PLAIN_FIELDS:
            self._read_other(delta, name)
        self._read_text(delta)
        finish = self._read_finish(choice.get("finish_reason"))
        choice["finish_reason"] = finish
        logprobs = choice.get("logprobs")
        if logprobs is not None and not _is_logprobs(logprobs):
            logprobs = choice["logprobs"] = None
        return choice if finish or logprobs or any(delta.values()) else None

    def infer_finish(self) -> str:
        """Return the finish reason of a choice that ended without one."""
        return "tool_calls" if len(self.tool_calls) else "stop"

    def _read_role(self, delta: Json) -> None:
        if self.has_role:
            delta.pop("role", None)
        else:
            self.has_role = True
            delta["role"] = "assistant"

    def _read_text(self, delta: Json) -> None:
        for name in _TEXT_FIELDS:
            text = delta.get(name)
            if text is None:
                continue
            if not isinstance(text, str):
                text = delta[name] = _join(text)
            if text:
                self.size_bytes += len(text) if text.isascii() else utf8_size(text)

    def _read_other(self, delta: Json, name: str) -> None:
        value = delta[name]
        if name == "tool_calls":
            fragments = self.tool_calls.read(value)
            self.size_bytes += sum(map(_fragment_size, fragments))
            if fragments:
                delta["tool_calls"] = fragments
            else:
                del delta["tool_calls"]
        elif value is None:
            del delta[name]
        elif isinstance(value, list):
            # Number the elements: the official client joins lists of objects by `index` and fails without an index.
            for element in value:
                if isinstance(element, dict) and "index" not in element:
                    element["index"] = self._numbered.get(name, 0)
                    self._numbered[name] = element["index"] + 1
        elif name == "function_call" and isinstance(value, dict):
            self.size_bytes += sum(utf8_size(text) for text in value.values() if isinstance(text, str))

    def _read_finish(self, reason: Any) -> str | None:
        if not isinstance(reason, str) or not reason or self.finish_reason is not None:
            return None
        # Replace an unknown reason by a known one, because official clients accept only a closed list of reasons.
        known = reason in _KNOWN_FINISHES
        self.finish_reason = reason if known else _OTHER_FINISHES.get(reason) or self.infer_finish()
        return self.finish_reason


def _join(parts: Any) -> str:
    """Return the joined text of content that the upstream sent as a list of parts."""
    if not isinstance(parts, list):
        return ""
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _is_logprobs(value: Any) -> bool:
    return isinstance(value, dict) and any(
        isinstance(value.get(name), list) for name in ("content", "refusal")
    )


def _fragment_size(fragment: Json) -> int:
    fields = fragment.get("function") or fragment.get("custom") or {}
    return sum(utf8_size(text) for text in fields.values())


@dataclass(slots=True, kw_only=True)
class ToolCall:
    """A tool call that is being received. `pieces` are the fragments of the arguments."""

    index: int
    kind: str
    id: str
    upstream_id: str | None
    upstream_index: int | None
    name: str
    pieces: list[str] = field(default_factory=list)


class ToolCalls:
    """The tool calls of one choice, in the order in which they began."""

    def __init__(self, id_prefix: str) -> None:
        self._id_prefix = id_prefix
        self._calls: list[ToolCall] = []

    def __len__(self) -> int:
        return len(self._calls)

    def read(self, fragments: Any) -> list[Json]:
        """Return the normalized fragments of one chunk, without fragments that add nothing."""
        if not isinstance(fragments, list):
            return []
        read = [self._read(fragment) for fragment in fragments if isinstance(fragment, dict)]
        return [fragment for fragment in read if fragment is not None]

    def _read(self, fragment: Json) -> Json | None:
        kind = "custom" if isinstance(fragment.get("custom"), dict) else "function"
        body = fragment.get(kind)
        body = body if isinstance(body, dict) else {}
        text = _text(body.get(_KINDS[kind]))
        name = body.get("name") if isinstance(body.get("name"), str) else None
        call = self._find(fragment, name)
        if call is None:
            return self._open(fragment, kind, name, text)
        call.upstream_id = call.upstream_id or fragment.get("id")
        fields: Json = {_KINDS[call.kind]: text}
        if name and name != call.name:
            call.name += name
            fields["name"] = name
        elif not text:
            return None
        call.pieces.append(text)
        return {"index": call.index, call.kind: fields}

    def _open(self, fragment: Json, kind: str, name: str | None, text: str) -> Json:
        index = len(self._calls)
        given = fragment.get("id") if isinstance(fragment.get("id"), str) else None
        call = ToolCall(
            index=index,
            kind=kind,
            id=given or f"{self._id_prefix}{index}",
            upstream_id=given or None,
            upstream_index=_int_or_none(fragment.get("index")),
            name=name or "",
            pieces=[text],
        )
        self._calls.append(call)
        fields = {"name": call.name, _KINDS[kind]: text}
        return {**fragment, "index": index, "id": call.id, "type": kind, kind: fields}

    def _find(self, fragment: Json, name: str | None) -> ToolCall | None:
        """Return the call that a fragment continues, or None if the fragment begins a new call."""
        given, index = fragment.get("id"), _int_or_none(fragment.get("index"))
        if given:
            same = [call for call in self._calls if call.upstream_id == given]
            if same:
                return same[-1]
        candidates = [call for call in self._calls if index is None or call.upstream_index == index]
        if not candidates:
            return None
        last = candidates[-1]
        if given:
            # The id is new. It begins a new call, unless the last call has no id and this fragment has no name.
            return last if last.upstream_id is None and not name else None
        # A new name after complete arguments begins a new call: this upstream uses index 0 for all calls.
        if name and last.name and _is_complete(last):
            return None
        return last


def _text(value: Any) -> str:
    """Return the arguments as JSON text. Some upstreams send a JSON object instead of text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _int_or_none(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_complete(call: ToolCall) -> bool:
    try:
        json.loads("".join(call.pieces))
    except ValueError:
        return False
    return True


_CUT = frozenset({"length", "content_filter"})


class FirstChoiceStream:
    """The base of streams that read chat chunks and reply with one choice: reads the first choice and the usage."""

    def __init__(self, call_id_prefix: str) -> None:
        self._choice = ChatChoice(call_id_prefix)
        self.usage: TokenCounts | None = None
        self.is_complete = False

    @property
    def size_bytes(self) -> int:
        """The model's output so far, in bytes of UTF-8."""
        return self._choice.size_bytes

    @property
    def status(self) -> str:
        """`incomplete` if a limit or a filter cut the reply."""
        return "incomplete" if self._choice.finish_reason in _CUT else "completed"

    def _follow(self, chunk: Json) -> Json | None:
        """Read one chunk, or a whole completion. Return the normalized delta of the first choice."""
        usage = chunk.get("usage")
        if usage is not None:
            self.usage = read_usage(usage) or self.usage
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices:
            # A chunk without choices is a usage report, which upstreams send after the reply's last text.
            self.is_complete = self.is_complete or (usage is not None and self._choice.has_role)
            return None
        first = choices[0]
        if not isinstance(first, dict) or first.get("index") not in (0, None):
            return None
        read = self._choice.read(first)
        self.is_complete = self.is_complete or self._choice.finish_reason is not None
        return read
