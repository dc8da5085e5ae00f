"""The reply to a Responses client of an upstream that also uses the Responses dialect: relays normalized events.

The upstream's values are kept, except for the id, the model, the sequence numbers and `store`. An item keeps its first
id, missing usage details are filled in, and a missing `response.created` is added. If the upstream sends a whole
response, it becomes the events of a stream, or only the last event if the client wants no stream.
"""

from collections.abc import Callable, Iterator
from typing import Any

from shared.credits.prices import TokenCounts
from shared.models.dialects.deltas import Delta
from shared.models.dialects.failures import Failure
from shared.models.dialects.requests import Json, ParsedRequest, objects_in
from shared.models.dialects.responses_objects import adopt, end_response, new_response
from shared.models.dialects.responses_stream import EventLog
from shared.models.dialects.token_counts import read_usage, utf8_size

_BEGINNINGS = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDS = frozenset({"response.completed", "response.incomplete"})
_NEEDS_LOGPROBS = frozenset({"response.output_text.delta", "response.output_text.done"})
_MAXIMUM_TYPE_CHARACTERS = 100
_PARTS = {"output_text": ("output_text", "text"), "refusal": ("refusal", "refusal")}
_CALLS = {
    "function_call": ("function_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
}
_HAVE_STATUS = ("message", "function_call")
_TEXT_FIELDS = ("content", "text", "refusal", "arguments", "input", "summary")


class ResponsesRelay:
    """The reply to one Responses request, from upstream Responses events."""

    def __init__(
        self, parsed: ParsedRequest, *, reply_id: str, model_id: str, created: int, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._is_stream = parsed.is_stream
        self._log = EventLog(is_stream=parsed.is_stream)
        self._response = new_response(parsed, reply_id=reply_id, model_id=model_id, created=created)
        self._suffix = reply_id.removeprefix("resp_")
        self._started: set[str] = set()
        self._item_ids: dict[int, str] = {}
        self._done: dict[int, Json] = {}
        self.size_bytes = 0
        self.usage: TokenCounts | None = None
        self.is_complete = False

    @property
    def status(self) -> str:
        """`incomplete` if a limit or a filter cut the reply."""
        return str(self._response["status"]) if self.is_complete else "completed"

    def feed(self, event: Json) -> list[Delta]:
        """Read one upstream event, or a whole response, and modify it. Return the deltas for the client."""
        if event.get("object") == "response":
            for each in events_of(event) if self._is_stream else [end_of(event)]:
                self._relay(each["type"], each)
            self.size_bytes = size_of_output(self._response["output"])
        else:
            kind = event.get("type")
            if (
                # Ignore an event with a type unsafe for the `event:` line of a frame: with line breaks or too long.
                isinstance(kind, str)
                and kind.isascii()
                and kind.isprintable()
                and len(kind) <= _MAXIMUM_TYPE_CHARACTERS
            ):
                self._relay(kind, event)
        return self._log.take()

    def finish(self, usage: TokenCounts) -> list[Delta]:
        """End a complete stream with the upstream's own last event, which was kept back until the usage is known."""
        self._response = end_response(
            self._response,
            status=self._response["status"],
            output=self._response["output"],
            usage=usage,
            completed_at=int(self._clock()),
        )
        self._log.emit(f"response.{self._response['status']}", response=self._response)
        return self._log.take()

    def fail(self, failure: Failure, usage: TokenCounts | None) -> list[Delta]:
        """End a broken stream with the output so far and the failure."""
        self._begin("response.created")
        output = [self._done[index] for index in sorted(self._done)]
        self._response = end_response(self._response, status="failed", output=output, usage=usage)
        self._log.fail(failure, self._response)
        return self._log.take()

    def result(self, _usage: TokenCounts) -> Json:
        """Return the whole response, after `finish`."""
        return self._response

    def _relay(self, kind: str, event: Json) -> None:
        response = event.get("response")
        if kind in _ENDS or kind in _BEGINNINGS:
            if isinstance(response, dict):
                self._adopt(kind, response)
            if kind in _BEGINNINGS:
                self._begin(kind)
            return
        self._begin("response.created")
        index = event.get("output_index")
        if isinstance(index, int):
            self._hold_ids(kind, index, event)
        if kind in _NEEDS_LOGPROBS and event.get("logprobs") is None:
            event["logprobs"] = []
        delta = event.get("delta")
        if isinstance(delta, str):
            self.size_bytes += utf8_size(delta)
        if kind == "response.output_item.done" and isinstance(event.get("item"), dict):
            self._done[index if isinstance(index, int) else len(self._done)] = event["item"]
        event.pop("type", None)
        # Drop the upstream's number: this service numbers the events itself, because it adds missing events.
        event.pop("sequence_number", None)
        self._log.emit(kind, **event)

    def _begin(self, kind: str) -> None:
        """Send an opening event once. If `response.created` is missing, send it first."""
        for each in ("response.created",) if kind == "response.created" else ("response.created", kind):
            if each not in self._started:
                self._started.add(each)
                self._log.emit(each, response=self._response)

    def _adopt(self, kind: str, response: Json) -> None:
        self.usage = read_usage(response.get("usage")) or self.usage
        self._response = adopt(self._response, response)
        if kind not in _ENDS:
            # Reset the fields that only the end may set, because some upstreams set them in an opening event.
            self._response |= {"status": "in_progress", "output": [], "error": None}
            return
        self._begin("response.created")
        self.is_complete = True
        output = objects_in(self._response["output"]) or [self._done[index] for index in sorted(self._done)]
        self.size_bytes = self.size_bytes or size_of_output(output)
        # Modify copies: emitted events may contain the same objects and are serialized later.
        output = [dict(item) for item in output]
        for index, item in enumerate(output):
            self._make_regular(index, item, status="completed")
        self._response = {**self._response, "status": kind.removeprefix("response."), "output": output}

    def _hold_ids(self, kind: str, index: int, event: Json) -> None:
        item = event.get("item")
        if isinstance(item, dict):
            is_open = kind == "response.output_item.added"
            self._make_regular(index, item, status="in_progress" if is_open else "completed")
        elif "item_id" in event or index in self._item_ids:
            event["item_id"] = self._item_ids.setdefault(index, event.get("item_id") or self._own_id(index))

    def _make_regular(self, index: int, item: Json, *, status: str) -> None:
        """Set an item's id to the first id that the upstream sent, and add fields that some upstreams omit.

        Official clients require that an item's id does not change.
        """
        item["id"] = self._item_ids.setdefault(index, item.get("id") or self._own_id(index))
        if item.get("type") in _HAVE_STATUS and item.get("status") is None:
            item["status"] = status
        if item.get("encrypted_content", "") is None:
            # Remove the null, because Open Responses requires a string or no field.
            del item["encrypted_content"]

    def _own_id(self, index: int) -> str:
        return f"item_{self._suffix}{index:02x}"


def events_of(response: Json) -> Iterator[Json]:
    """Yield the events of a whole response, from `response.created` to the last event, without numbers and ids."""
    yield {"type": "response.created", "response": {**response, "output": [], "usage": None}}
    for index, item in enumerate(objects_in(response.get("output"))):
        for event in _item_events(item):
            yield {**event, "output_index": index}
    yield end_of(response)


def end_of(response: Json) -> Json:
    """Return the last event of a stream. This event contains the whole response."""
    end = "response.incomplete" if response.get("status") == "incomplete" else "response.completed"
    return {"type": end, "response": response}


def size_of_output(value: Any) -> int:
    """Return the size of the text in the items of an output, in bytes of UTF-8."""
    if isinstance(value, str):
        return utf8_size(value)
    if isinstance(value, dict):
        return sum(size_of_output(value.get(name)) for name in _TEXT_FIELDS)
    return sum(map(size_of_output, value)) if isinstance(value, list) else 0


def _item_events(item: Json) -> Iterator[Json]:
    kind, content = item.get("type"), item.get("content")
    is_message = kind == "message" and isinstance(content, list)
    stem, field = _CALLS.get(str(kind), ("", ""))
    opened = {**item, "content": []} if is_message else {**item, field: ""} if stem else item
    yield {"type": "response.output_item.added", "item": dict(opened)}
    if is_message:
        for index, part in enumerate(objects_in(content)):
            for event in _part_events(part):
                yield {**event, "item_id": item.get("id"), "content_index": index}
    elif stem and isinstance(item.get(field), str):
        place = {"item_id": item.get("id")}
        yield {"type": f"response.{stem}.delta", **place, "delta": item[field]}
        yield {"type": f"response.{stem}.done", **place, field: item[field], "name": item.get("name")}
    yield {"type": "response.output_item.done", "item": item}


def _part_events(part: Json) -> Iterator[Json]:
    if str(part.get("type")) not in _PARTS:
        return
    stem, field = _PARTS[part["type"]]
    yield {"type": "response.content_part.added", "part": {**part, field: ""}}
    if isinstance(part.get(field), str) and part[field]:
        yield {"type": f"response.{stem}.delta", "delta": part[field]}
    yield {"type": f"response.{stem}.done", field: part.get(field)}
    yield {"type": "response.content_part.done", "part": part}
