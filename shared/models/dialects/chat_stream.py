"""The reply to a client of the chat dialect: converts chat chunks to deltas or to one completion.

The upstream's own fields are kept, except where official clients would fail. The ids and the model are replaced by
those of this service. The choices begin in order. Usage is in one last chunk, and only if the client requested it. For
a client without a stream, `CompletionChoice` assembles the completion.
"""

from typing import Any

from shared.credits.prices import TokenCounts
from shared.models.dialects.chat_choices import ChatChoice
from shared.models.dialects.deltas import Delta
from shared.models.dialects.failures import Failure, chat_error
from shared.models.dialects.requests import Json, ParsedRequest
from shared.models.dialects.token_counts import chat_usage, read_usage

_SERVICE_TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast"})
_OURS = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation"})


class ChatStream:
    """The reply to one chat request, from upstream chat chunks."""

    def __init__(self, parsed: ParsedRequest, *, reply_id: str, model_id: str, created: int) -> None:
        self._is_stream = parsed.is_stream
        self._wants_usage = parsed.wants_usage
        self._n = parsed.n
        self._head: Json = {
            "id": reply_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model_id,
        }
        self._call_id_prefix = f"call_{reply_id.removeprefix('chatcmpl-')}"
        self._choices: dict[int, ChatChoice] = {}
        self._whole: dict[int, CompletionChoice] = {}
        self._last: Json = {}
        self.usage: TokenCounts | None = None
        self.is_complete = False

    @property
    def size_bytes(self) -> int:
        """The size of the output of all choices so far, in bytes of UTF-8."""
        size_bytes = 0
        for (
            choice
        ) in self._choices.values():  # asked at every chunk: `sum` of a generator takes three times as long
            size_bytes += choice.size_bytes
        return size_bytes

    @property
    def status(self) -> str:
        """`incomplete` if a limit or a filter cut a choice."""
        cut = any(choice.finish_reason in ("length", "content_filter") for choice in self._choices.values())
        return "incomplete" if cut else "completed"

    def feed(self, chunk: Json) -> list[Delta]:
        """Read one upstream chunk, or a whole completion, and modify it. Return the deltas for the client."""
        usage = chunk.get("usage")
        if usage is not None:
            self.usage = read_usage(usage) or self.usage
        given = chunk.get("choices")
        if not isinstance(given, list) or not given:
            # A chunk without choices is a usage report, which upstreams send after the reply's last text.
            self.is_complete = self.is_complete or (usage is not None and bool(self._choices))
            return []
        deltas: list[Delta] = []
        read = [
            found for position, choice in enumerate(given) if (found := self._read(choice, position, deltas))
        ]
        self._end_when_all_finished()
        if not read:
            return deltas
        self._keep(chunk)
        if not self._is_stream:
            for choice in read:
                self._whole[choice["index"]].add(choice)
            self._last.update({name: value for name, value in chunk.items() if name not in _OURS})
            return []
        chunk["choices"] = read
        chunk.update(self._head)
        # Set `usage` to null, which the official client expects on all chunks but the last.
        if self._wants_usage:
            chunk["usage"] = None
        else:
            chunk.pop("usage", None)
        deltas.append(Delta(chunk))
        return deltas

    def finish(self, usage: TokenCounts) -> list[Delta]:
        """End a complete stream: add missing finish reasons, and usage if requested."""
        unfinished = {
            index: choice.infer_finish()
            for index, choice in self._choices.items()
            if choice.finish_reason is None
        }
        if not self._is_stream:
            for index, reason in unfinished.items():
                self._whole[index].finish_reason = reason
            return []
        deltas = [
            self._delta([{"index": index, "delta": {}, "finish_reason": reason}])
            for index, reason in unfinished.items()
        ]
        if self._wants_usage:
            deltas.append(self._delta([], chat_usage(usage)))
        return deltas

    def fail(self, failure: Failure, _usage: TokenCounts | None) -> list[Delta]:
        """End a broken stream with the error that clients raise."""
        return [Delta(chat_error(failure))] if self._is_stream else []

    def result(self, usage: TokenCounts) -> Json:
        """Return the whole `chat.completion` of a request without a stream."""
        choices = [self._whole[index].write() for index in sorted(self._whole)]
        return {
            **self._head,
            "object": "chat.completion",
            "choices": choices,
            "usage": chat_usage(usage),
            **self._last,
        }

    def _read(self, choice: Any, position: int, deltas: list[Delta]) -> Json | None:
        if not isinstance(choice, dict):
            return None
        index = choice.get("index")
        if not isinstance(index, int) or not 0 <= index < self._n:
            # Use the position, because some upstreams omit the index or count from one.
            index = choice["index"] = min(position, self._n - 1)
        state = self._choices.get(index)
        if state is None:
            state = self._open(index, deltas)
        return state.read(choice)

    def _open(self, index: int, deltas: list[Delta]) -> ChatChoice:
        """Open a choice and all choices with a lower index, because the official client appends choices in order."""
        for missing in range(index + 1):
            if missing in self._choices:
                continue
            state = self._choices[missing] = ChatChoice(f"{self._call_id_prefix}{missing:x}")
            if not self._is_stream:
                self._whole[missing] = CompletionChoice(missing)
            elif missing < index:
                opener = {"index": missing, "delta": {"role": "assistant"}, "finish_reason": None}
                state.has_role = True
                deltas.append(self._delta([opener]))
        return self._choices[index]

    def _end_when_all_finished(self) -> None:
        """Set `is_complete` if all `n` choices have begun and finished."""
        if len(self._choices) < self._n:
            return
        for choice in self._choices.values():  # at every chunk, like the size
            if not choice.finish_reason:
                return
        self.is_complete = True

    def _keep(self, chunk: Json) -> None:
        """Remember the last fingerprint and service tier for the final chunk, where the official client reads them."""
        fingerprint, tier = chunk.get("system_fingerprint"), chunk.get("service_tier")
        if isinstance(fingerprint, str):
            self._last["system_fingerprint"] = fingerprint
        elif fingerprint is not None:
            del chunk["system_fingerprint"]
        if tier is not None:
            if tier in _SERVICE_TIERS:
                self._last["service_tier"] = tier
            else:
                del chunk["service_tier"]

    def _delta(self, choices: list[Json], usage: Json | None = None) -> Delta:
        reported = {"usage": usage} if self._wants_usage else {}
        return Delta({**self._head, "choices": choices, **reported, **self._last})


class CompletionChoice:
    """One choice of a completion: strings joined, tool calls merged by index, log probabilities appended."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.finish_reason = "stop"
        self._texts: dict[str, list[str]] = {}
        self._others: Json = {}
        self._calls: list[Json] = []
        self._call_texts: list[dict[str, list[str]]] = []
        self._logprobs: dict[str, list[Any]] = {}

    def add(self, choice: Json) -> None:
        """Add one normalized choice of one chunk."""
        for name, value in choice["delta"].items():
            if name == "tool_calls":
                for fragment in value:
                    self._add_call(fragment)
            elif isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
            elif isinstance(value, list):
                self._others.setdefault(name, []).extend(_unnumbered(value))
            elif name == "function_call" and isinstance(value, dict):
                self._add_function_call(value)
            elif value is not None:
                self._others[name] = value
        for name, tokens in (choice.get("logprobs") or {}).items():
            if isinstance(tokens, list):
                self._logprobs.setdefault(name, []).extend(tokens)
        self.finish_reason = choice["finish_reason"] or self.finish_reason

    def write(self) -> Json:
        """Return the choice of a `chat.completion`."""
        message: Json = {"role": "assistant", "content": None, "refusal": None}
        message.update({name: "".join(pieces) for name, pieces in self._texts.items() if name != "role"})
        message.update(self._others)
        if self._calls:
            pairs = zip(self._calls, self._call_texts, strict=True)
            message["tool_calls"] = [self._write_call(call, texts) for call, texts in pairs]
        if message["content"] == "" and (self._calls or message["refusal"]):
            # Use null, as OpenAI does for a message with tool calls or a refusal and without text.
            message["content"] = None
        elif message["content"] is None and not (
            self._calls or message["refusal"] or "function_call" in message
        ):
            message["content"] = ""
        message["refusal"] = message["refusal"] or None
        logprobs = {"content": None, "refusal": None, **self._logprobs} if self._logprobs else None
        return {
            "index": self.index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": self.finish_reason,
        }

    def _add_call(self, fragment: Json) -> None:
        kind = "custom" if "custom" in fragment else "function"
        if fragment["index"] == len(self._calls):
            kept = {name: value for name, value in fragment.items() if name not in ("index", kind)}
            self._calls.append(kept)
            self._call_texts.append({})
        texts = self._call_texts[fragment["index"]]
        for name, text in fragment[kind].items():
            texts.setdefault(name, []).append(text)

    @staticmethod
    def _write_call(call: Json, texts: dict[str, list[str]]) -> Json:
        return {**call, call["type"]: {name: "".join(pieces) for name, pieces in texts.items()}}

    def _add_function_call(self, value: Json) -> None:
        call = self._others.setdefault("function_call", {"name": "", "arguments": ""})
        for name in ("name", "arguments"):
            call[name] += value.get(name) or ""


def _unnumbered(elements: list[Any]) -> list[Any]:
    return [
        {name: value for name, value in element.items() if name != "index"}
        if isinstance(element, dict)
        else element
        for element in elements
    ]
