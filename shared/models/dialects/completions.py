"""The whole of a chat completion, put together from its deltas for a client that did not ask for a stream."""

from typing import Any

from shared.models.dialects.requests import Json


class CompletionChoice:
    """One choice of a completion. Strings are joined, tool calls merged by index, log probabilities appended."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.finish_reason = "stop"
        self._texts: dict[str, list[str]] = {}
        self._others: Json = {}
        self._calls: list[Json] = []
        self._call_texts: list[dict[str, list[str]]] = []
        self._logprobs: dict[str, list[Any]] = {}

    def add(self, choice: Json) -> None:
        """Add what one regular choice of one chunk says."""
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
        """Write the choice of a `chat.completion`."""
        message: Json = {"role": "assistant", "content": None, "refusal": None}
        message.update({name: "".join(pieces) for name, pieces in self._texts.items() if name != "role"})
        message.update(self._others)
        if self._calls:
            pairs = zip(self._calls, self._call_texts, strict=True)
            message["tool_calls"] = [self._write_call(call, texts) for call, texts in pairs]
        if message["content"] == "" and (self._calls or message["refusal"]):
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
