"""The reply to a Responses client of an upstream that uses chat: converts chat chunks to Responses events.

Text, refusal and reasoning become items one after another. The items of calls stay open until the end, because
upstreams may interleave the fragments of several calls. The closing events wait for the usage report, which chat
upstreams send last.

Each item sends exactly the events that Open Responses requires, in this order: output_item.added →
(content_part.added → deltas → *.done → content_part.done)* → output_item.done. The official client refuses a stream in
another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from shared.credits.prices import TokenCounts
from shared.models.dialects.chat_choices import FirstChoiceStream
from shared.models.dialects.deltas import Delta
from shared.models.dialects.failures import Failure, response_error, responses_error
from shared.models.dialects.requests import Json, ParsedRequest, object_or_empty, objects_in
from shared.models.dialects.responses_objects import adopt, end_response, new_response

_CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}
_UNCITED = {"type": "url_citation", "url": "", "title": "", "start_index": 0, "end_index": 0}
_ITEM_PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_"}


class EventLog:
    """Numbers events and keeps them until `take`. If the client wants no stream, keeps no events.

    The caller must not modify an emitted event, because events are serialized later.
    """

    def __init__(self, *, is_stream: bool) -> None:
        self._is_stream = is_stream
        self._deltas: list[Delta] = []
        self.sequence_number = 0

    def emit(self, type_: str, /, **fields: Any) -> None:
        """Append one event with the next number."""
        if self._is_stream:
            self._deltas.append(Delta({"type": type_, "sequence_number": self.sequence_number, **fields}))
        self.sequence_number += 1

    def fail(self, failure: Failure, response: Json) -> None:
        """Append `response.failed` with the output so far, then the `error` event that official clients raise."""
        self.emit("response.failed", response={**response, "error": response_error(failure)})
        error = responses_error(failure, self.sequence_number)
        self.emit(error.pop("type"), **error)

    def take(self) -> list[Delta]:
        """Return the events that were appended since the last call of `take`."""
        deltas, self._deltas = self._deltas, []
        return deltas


class ResponsesStream(FirstChoiceStream):
    """The reply to one Responses request, from upstream chat chunks."""

    def __init__(
        self, parsed: ParsedRequest, *, reply_id: str, model_id: str, created: int, clock: Callable[[], float]
    ) -> None:
        self._suffix = reply_id.removeprefix("resp_")
        super().__init__(f"call_{self._suffix}")
        self._clock = clock
        self._log = EventLog(is_stream=parsed.is_stream)
        self._response = new_response(parsed, reply_id=reply_id, model_id=model_id, created=created)
        self._has_started = False
        self._items: list[Json] = []
        self._open_text_item: PartedItem | None = None
        self._calls: list[CallItem] = []

    def feed(self, chunk: Json) -> list[Delta]:
        """Read one upstream chunk, or a whole completion. Return the deltas for the client."""
        self._start()
        if chunk.get("service_tier"):
            self._response = adopt(self._response, {"service_tier": chunk["service_tier"]})
        read = self._follow(chunk)
        if read is not None:
            self._add(read["delta"], _tokens(read.get("logprobs")))
        return self._log.take()

    def finish(self, usage: TokenCounts) -> list[Delta]:
        """End a complete stream: close open items, then send `response.completed` or `response.incomplete`."""
        self._start()
        if not self._items:
            # Add an empty message, because official clients expect at least one item.
            self._open_item("message").add_text("output_text", "")
        status = self.status
        self._close(status)
        self._response = end_response(
            self._response,
            status=status,
            output=self._items,
            usage=usage,
            completed_at=int(self._clock()),
        )
        if status == "incomplete":
            self._response["incomplete_details"] = {"reason": _CUT[str(self._choice.finish_reason)]}
        self._log.emit(f"response.{status}", response=self._response)
        return self._log.take()

    def fail(self, failure: Failure, usage: TokenCounts | None) -> list[Delta]:
        """End a broken stream: close open items as incomplete, then send the failure."""
        self._start()
        self._close("incomplete")
        self._response = end_response(self._response, status="failed", output=self._items, usage=usage)
        self._log.fail(failure, self._response)
        return self._log.take()

    def result(self, _usage: TokenCounts) -> Json:
        """Return the whole response, after `finish`."""
        return self._response

    def _start(self) -> None:
        if not self._has_started:
            self._has_started = True
            self._log.emit("response.created", response=self._response)
            self._log.emit("response.in_progress", response=self._response)

    def _add(self, delta: Json, logprobs: list[Json]) -> None:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning:
            self._open_item("reasoning").add_text("reasoning_text", reasoning)
        if delta.get("content"):
            self._open_item("message").add_text("output_text", delta["content"], logprobs)
        if delta.get("refusal"):
            self._open_item("message").add_text("refusal", delta["refusal"])
        for annotation in objects_in(delta.get("annotations")):
            citation = annotation.get("url_citation")
            if isinstance(citation, dict):
                self._open_item("message").annotate({**_UNCITED, **citation})
        for fragment in delta.get("tool_calls") or ():
            self._call(fragment)

    def _open_item(self, kind: str) -> PartedItem:
        if self._open_text_item is not None:
            if self._open_text_item.item["type"] == kind:
                return self._open_text_item
            self._open_text_item.close("completed")
        item: Json = {"id": self._item_id(kind), "type": kind, "status": "in_progress", "content": []}
        if kind == "message":
            item["role"] = "assistant"
        else:
            # Omit `encrypted_content`, which must be a string or absent in Open Responses.
            item["summary"] = []
        self._items.append(item)
        self._open_text_item = PartedItem(self._log.emit, len(self._items) - 1, item)
        return self._open_text_item

    def _call(self, fragment: Json) -> None:
        kind = "custom" if "custom" in fragment else "function"
        called, field = fragment[kind], "input" if kind == "custom" else "arguments"
        if fragment["index"] == len(self._calls):
            if self._open_text_item is not None:
                self._open_text_item.close("completed")
                self._open_text_item = None
            type_ = "custom_tool_call" if kind == "custom" else "function_call"
            item = {
                "id": self._item_id(type_),
                "type": type_,
                "status": "in_progress",
                "call_id": fragment["id"],
            }
            item |= {"name": called["name"], field: ""}
            self._items.append(item)
            self._calls.append(CallItem(self._log.emit, len(self._items) - 1, item))
        elif "name" in called:
            self._calls[fragment["index"]].item["name"] += called["name"]
        self._calls[fragment["index"]].add_text(called[field])

    def _close(self, status: str) -> None:
        """Close the open items in order. Only the last item gets `status`; the items before it are complete."""
        waiting: list[Item] = [*self._calls]
        if self._open_text_item is not None:
            waiting.append(self._open_text_item)
            waiting.sort(key=lambda open_: self._items.index(open_.item))
        for open_ in waiting:
            open_.close(status if open_ is waiting[-1] else "completed")

    def _item_id(self, kind: str) -> str:
        return f"{_ITEM_PREFIXES[kind]}{self._suffix}{len(self._items):02x}"


def _tokens(logprobs: Any) -> list[Json]:
    """Convert chat's log probabilities to the form of an output text, which requires `bytes`."""
    content = objects_in(object_or_empty(logprobs).get("content"))
    return [_token(token) for token in content if "logprob" in token]


def _token(token: Json) -> Json:
    top = [_with_bytes(other) for other in objects_in(token.get("top_logprobs"))]
    return {**_with_bytes(token), "top_logprobs": top}


def _with_bytes(token: Json) -> Json:
    text = str(token.get("token", ""))
    utf8 = token.get("bytes") or list(text.encode("utf-8", "surrogatepass"))
    return {"token": text, "bytes": utf8, "logprob": token.get("logprob", 0.0)}


Emit = Callable[..., None]


class Item(Protocol):
    """An open item of the output."""

    item: Json

    def close(self, status: str) -> None:
        """Send the closing events of the item with this status: `completed` or `incomplete`."""


class PartedItem:
    """An open item with text in parts: a message (with text or refusal parts) or reasoning."""

    def __init__(self, emit: Emit, output_index: int, item: Json) -> None:
        self._emit = emit
        self._place = {"item_id": item["id"], "output_index": output_index, "content_index": 0}
        self._pieces: list[str] = []
        self._part: Json | None = None
        self.item = item
        emit("response.output_item.added", output_index=output_index, item={**item, "content": []})

    def add_text(self, part_type: str, text: str, logprobs: list[Json] | None = None) -> None:
        """Append text to the open part if that has this type, else close it and open a new part."""
        kind = _PARTS[part_type]
        part = self._open(part_type)
        self._pieces.append(text)
        extra: Json = {}
        if part_type == "output_text":
            part["logprobs"] += logprobs or ()
            extra["logprobs"] = _short(logprobs)
        self._emit(f"response.{kind[0]}.delta", **self._place, delta=text, **extra)

    def annotate(self, annotation: Json) -> None:
        """Add an annotation to the text."""
        part = self._open("output_text")
        index = len(part["annotations"])
        part["annotations"].append(annotation)
        self._emit(
            "response.output_text.annotation.added",
            **self._place,
            annotation_index=index,
            annotation=annotation,
        )

    def close(self, status: str) -> None:
        """Close the open part and the item."""
        self._close_part()
        self.item["status"] = status
        self._emit("response.output_item.done", output_index=self._place["output_index"], item=self.item)

    def _open(self, part_type: str) -> Json:
        if self._part is not None and self._part["type"] == part_type:
            return self._part
        self._close_part()
        field = _PARTS[part_type][1]
        self._part = {"type": part_type, field: ""}
        if part_type == "output_text":
            self._part |= {"annotations": [], "logprobs": []}
        self._place["content_index"] = len(self.item["content"])
        self.item["content"].append(self._part)
        self._emit("response.content_part.added", **self._place, part=_copy(self._part))
        return self._part

    def _close_part(self) -> None:
        part = self._part
        if part is None:
            return
        stem, field = _PARTS[part["type"]]
        part[field] = "".join(self._pieces)
        extra = {"logprobs": _short(part["logprobs"])} if part["type"] == "output_text" else {}
        self._emit(f"response.{stem}.done", **self._place, **{field: part[field]}, **extra)
        self._emit("response.content_part.done", **self._place, part=part)
        self._pieces, self._part = [], None


class CallItem:
    """An open item with a call of a function or custom tool. The arguments arrive in pieces."""

    def __init__(self, emit: Emit, output_index: int, item: Json) -> None:
        self._emit = emit
        self._place = {"item_id": item["id"], "output_index": output_index}
        self._field = "arguments" if item["type"] == "function_call" else "input"
        self._stem = (
            "function_call_arguments" if item["type"] == "function_call" else "custom_tool_call_input"
        )
        self._pieces: list[str] = []
        self.item = item
        emit("response.output_item.added", output_index=output_index, item=dict(item))

    def add_text(self, text: str) -> None:
        """Append a piece of the arguments."""
        if text:
            self._pieces.append(text)
            self._emit(f"response.{self._stem}.delta", **self._place, delta=text)

    def close(self, status: str) -> None:
        """Close the call. If a function was called without arguments, the arguments become `{}`."""
        if not self._pieces and self._field == "arguments" and status == "completed":
            self.add_text("{}")
        self.item[self._field] = "".join(self._pieces)
        self.item["status"] = status
        self._emit(f"response.{self._stem}.done", **self._place, **self._done_fields())
        self._emit("response.output_item.done", output_index=self._place["output_index"], item=self.item)

    def _done_fields(self) -> Json:
        fields = {self._field: self.item[self._field]}
        return {**fields, "name": self.item["name"]} if self._field == "arguments" else fields


# For each type of part: the stem of the names of the part's events, and the field with the text.
_PARTS = {
    "output_text": ("output_text", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("reasoning_text", "text"),
}


def _copy(part: Json) -> Json:
    return {name: list(value) if isinstance(value, list) else value for name, value in part.items()}


def _short(logprobs: list[Json] | None) -> list[Json]:
    """Convert log probabilities to the form of deltas, which has no `bytes`."""
    return [
        {
            "token": t["token"],
            "logprob": t["logprob"],
            "top_logprobs": [_pair(top) for top in t["top_logprobs"]],
        }
        for t in logprobs or ()
    ]


def _pair(top: Any) -> Json:
    return {"token": top["token"], "logprob": top["logprob"]}
