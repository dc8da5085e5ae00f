"""Translate a Responses stream to chat chunks, from which the replies in the chat and Messages dialects are built.

Only items with an equivalent in chat are read. Other items, such as searches and code runs, are ignored: the upstream
runs them itself and uses their results in the text.
"""

from collections.abc import Iterator
from typing import Any

from shared.models.dialects.requests import Json, object_or_empty, objects_in
from shared.models.dialects.token_counts import chat_usage, read_usage

_STREAMED_PARTS = {
    "response.output_text": "output_text",
    "response.refusal": "refusal",
    "response.reasoning_text": "reasoning_text",
    "response.reasoning_summary_text": "summary_text",
}
# For each type of part: the field of chat's delta, and the field of the part with the text.
_PARTS = {
    "output_text": ("content", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("reasoning_content", "text"),
    "summary_text": ("reasoning_content", "text"),
}
_CALL_KINDS = {"function_call": ("function", "arguments"), "custom_tool_call": ("custom", "input")}
_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}
_ENDS = ("response.completed", "response.incomplete")


class ResponsesAsChunks:
    """Translates events to chunks. Counts the sent text of each part, to send text that only a `done` event has."""

    def __init__(self) -> None:
        self._sent_characters: dict[tuple[int, int, str], int] = {}
        self._calls: dict[int, tuple[int, str]] = {}

    def read(self, event: Json) -> list[Json]:
        """Return the chunks of one event, or of a whole response."""
        if event.get("object") == "response":
            return [*self._output(event), self._end(event)]
        kind = event.get("type")
        if not isinstance(kind, str):
            return []
        if kind in _ENDS:
            response = object_or_empty(event.get("response"))
            return [*self._output(response), self._end(response)]
        return [_chunk(delta, logprobs) for delta, logprobs in self._deltas(kind, event)]

    def _deltas(self, kind: str, event: Json) -> Iterator[tuple[Json, Any]]:
        stem, _, verb = kind.rpartition(".")
        output = _index(event, "output_index")
        if kind in ("response.output_item.added", "response.output_item.done"):
            yield from self._item(output, object_or_empty(event.get("item")), verb)
        elif stem in _STREAMED_PARTS and verb in ("delta", "done"):
            part, index = _STREAMED_PARTS[stem], _index(event, "content_index", "summary_index")
            text = event.get("delta") if verb == "delta" else event.get(_PARTS[part][1])
            for new, logprobs in self._new((output, index, part), text, event.get("logprobs"), verb):
                yield {_PARTS[part][0]: new}, logprobs
        elif kind in ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"):
            yield from self._arguments(output, event.get("delta"), "delta")
        elif kind in ("response.function_call_arguments.done", "response.custom_tool_call_input.done"):
            yield from self._arguments(output, event.get("arguments", event.get("input")), "done")
        elif kind == "response.output_text.annotation.added":
            yield from _annotations([event.get("annotation")])

    def _output(self, response: Json) -> list[Json]:
        """Return the chunks of a whole response's items, unless items were streamed before."""
        items = response.get("output")
        if self._sent_characters or self._calls or not isinstance(items, list):
            return []
        return [
            _chunk(*delta)
            for index, item in enumerate(items)
            for delta in self._item(index, object_or_empty(item), "done")
        ]

    def _item(self, output: int, item: Json, verb: str) -> Iterator[tuple[Json, Any]]:
        kind = str(item.get("type"))
        if kind in _CALL_KINDS:
            # Read a call from the finished item, too, because some upstreams send no earlier events of the call.
            yield from self._call(output, item, verb)
        elif verb == "done" and kind in ("message", "reasoning"):
            for name in ("summary", "content"):
                for index, part in enumerate(objects_in(item.get(name))):
                    yield from self._part(output, index, part)

    def _part(self, output: int, index: int, part: Json) -> Iterator[tuple[Json, Any]]:
        kind = str(part.get("type"))
        if kind not in _PARTS:
            return
        place = (output, index, kind)
        field, name = _PARTS[kind]
        is_new = place not in self._sent_characters
        for new, logprobs in self._new(place, part.get(name), part.get("logprobs"), "done"):
            yield {field: new}, logprobs
        if is_new:
            yield from _annotations(part.get("annotations"))

    def _call(self, output: int, item: Json, verb: str) -> Iterator[tuple[Json, Any]]:
        kind, field = _CALL_KINDS[item["type"]]
        if output not in self._calls:
            index, _ = self._calls[output] = (len(self._calls), kind)
            called = {"name": item.get("name") or "", field: ""}
            call = {"index": index, "id": item.get("call_id") or item.get("id"), "type": kind, kind: called}
            yield {"tool_calls": [call]}, None
        if verb == "done" or item.get(field):
            yield from self._arguments(output, item.get(field), "done")

    def _arguments(self, output: int, text: Any, verb: str) -> Iterator[tuple[Json, Any]]:
        if output not in self._calls:
            return
        index, kind = self._calls[output]
        field = "input" if kind == "custom" else "arguments"
        for new, _ in self._new((output, 0, field), text, None, verb):
            yield {"tool_calls": [{"index": index, kind: {field: new}}]}, None

    def _new(
        self, place: tuple[int, int, str], text: Any, logprobs: Any, verb: str
    ) -> Iterator[tuple[str, Any]]:
        """Yield the text that was not sent yet: all of a delta, or the unsent rest of a `done` event's whole text."""
        sent = self._sent_characters.get(place, 0)
        new = text[sent if verb == "done" else 0 :] if isinstance(text, str) else ""
        self._sent_characters[place] = sent + len(new)
        if new:
            # Drop the log probabilities of a `done` event if they also cover text that was sent before.
            yield new, None if verb == "done" and sent else logprobs

    def _end(self, response: Json) -> Json:
        reason = "tool_calls" if self._calls else "stop"
        if response.get("status") == "incomplete" or response.get("incomplete_details"):
            reason = _INCOMPLETE.get(
                str(object_or_empty(response.get("incomplete_details")).get("reason")), "length"
            )
        counts = read_usage(response.get("usage"))
        chunk = _chunk({}, None, reason)
        return chunk if counts is None else {**chunk, "usage": chat_usage(counts)}


def _chunk(delta: Json, logprobs: Any, finish_reason: str | None = None) -> Json:
    choice: Json = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    if logprobs:
        # Nest the tokens under `content`, as chat does.
        choice["logprobs"] = {"content": [_token(token) for token in objects_in(logprobs)]}
    return {"choices": [choice]}


def _token(token: Json) -> Json:
    """Convert a token's log probability to chat's form, which requires `bytes` and `top_logprobs`."""
    top = [{"bytes": None, **other} for other in objects_in(token.get("top_logprobs"))]
    return {"bytes": None, **token, "top_logprobs": top}


def _annotations(annotations: Any) -> Iterator[tuple[Json, Any]]:
    for annotation in objects_in(annotations):
        if annotation.get("type") == "url_citation":
            citation = {name: value for name, value in annotation.items() if name != "type"}
            yield {"annotations": [{"type": "url_citation", "url_citation": citation}]}, None


def _index(event: Json, *names: str) -> int:
    found = [event[name] for name in names if isinstance(event.get(name), int)]
    return int(found[0]) if found else 0
