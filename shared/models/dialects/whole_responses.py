"""A whole Response said as the events that would have told it, or as its end alone where nobody wants a stream."""

from collections.abc import Iterator
from typing import Any

from shared.models.dialects.requests import Json, objects_in
from shared.models.dialects.token_counts import utf8_size

_PARTS = {"output_text": ("output_text", "text"), "refusal": ("refusal", "refusal")}
_CALLS = {
    "function_call": ("function_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
}
_SAID_IN = ("content", "text", "refusal", "arguments", "input", "summary")


def events_of(response: Json) -> Iterator[Json]:
    """Say a response from `response.created` to its end; numbers and ids are for the relay to give."""
    yield {"type": "response.created", "response": {**response, "output": [], "usage": None}}
    for index, item in enumerate(objects_in(response.get("output"))):
        for event in _item_events(item):
            yield {**event, "output_index": index}
    yield end_of(response)


def end_of(response: Json) -> Json:
    """Say the end of a response alone, which tells all to who wants no stream."""
    end = "response.incomplete" if response.get("status") == "incomplete" else "response.completed"
    return {"type": end, "response": response}


def size_of_output(value: Any) -> int:
    """Tell how much the items of an output say, in bytes of UTF-8."""
    if isinstance(value, str):
        return utf8_size(value)
    if isinstance(value, dict):
        return sum(size_of_output(value.get(name)) for name in _SAID_IN)
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
