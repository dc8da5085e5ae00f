"""The items of a Response while they grow: each opens, takes deltas and closes with exactly the events it must.

added → (content_part.added → deltas → *.done → content_part.done)* → output_item.done, per Open Responses; the
official client refuses a stream that breaks the order.
"""

from collections.abc import Callable
from typing import Any, Protocol

from shared.models.dialects.requests import Json

Emit = Callable[..., None]


class Item(Protocol):
    """An item of the output that is still open."""

    item: Json

    def close(self, status: str) -> None:
        """Say everything that ends the item, as `completed` or `incomplete`."""


class PartedItem:
    """An item whose text stands in parts: a message (text, refusal) or reasoning."""

    def __init__(self, emit: Emit, output_index: int, item: Json) -> None:
        self._emit = emit
        self._place = {"item_id": item["id"], "output_index": output_index, "content_index": 0}
        self._pieces: list[str] = []
        self._part: Json | None = None
        self.item = item
        emit("response.output_item.added", output_index=output_index, item={**item, "content": []})

    def add_text(self, part_type: str, text: str, logprobs: list[Json] | None = None) -> None:
        """Add text to the open part, or open one of this type."""
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
    """A function call or a custom tool's call; its arguments come in pieces."""

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
        """Add a piece of the arguments."""
        if text:
            self._pieces.append(text)
            self._emit(f"response.{self._stem}.delta", **self._place, delta=text)

    def close(self, status: str) -> None:
        """Close the call; a function called without arguments was called with none, which JSON spells {}."""
        if not self._pieces and self._field == "arguments" and status == "completed":
            self.add_text("{}")
        self.item[self._field] = "".join(self._pieces)
        self.item["status"] = status
        self._emit(f"response.{self._stem}.done", **self._place, **self._done_fields())
        self._emit("response.output_item.done", output_index=self._place["output_index"], item=self.item)

    def _done_fields(self) -> Json:
        fields = {self._field: self.item[self._field]}
        return {**fields, "name": self.item["name"]} if self._field == "arguments" else fields


# Part type: the stem of its events' names, its text's field.
_PARTS = {
    "output_text": ("output_text", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("reasoning_text", "text"),
}


def _copy(part: Json) -> Json:
    return {name: list(value) if isinstance(value, list) else value for name, value in part.items()}


def _short(logprobs: list[Json] | None) -> list[Json]:
    """Write log probabilities as deltas carry them, without bytes."""
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
