"""Response models of `POST /v1/responses`: a Response, or the events of a stream.

The models describe only the fields that every client relies on. Further fields, items and events of a
provider are passed through.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, RootModel

from web.models.chat_schemas import ReplyModel

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class ReplyPart(ReplyModel):
    """A part of a message or of reasoning: text, or a refusal."""

    type: str = Field(description="`output_text`, `refusal`, `reasoning_text`, `summary_text` or another.")
    text: str | None = None
    refusal: str | None = None


class MessageItem(ReplyModel):
    """A message of the model."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: ItemStatus
    content: Sequence[ReplyPart]


class ReasoningItem(ReplyModel):
    """Reasoning of the model."""

    id: str
    type: Literal["reasoning"]
    summary: Sequence[ReplyPart]


class FunctionCallItem(ReplyModel):
    """A call of a function, with its arguments as JSON in a string."""

    id: str | None = None
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class OtherItem(ReplyModel):
    """A call of a custom tool, or an item of a type that only the provider defines."""

    type: str


class OutputItem(RootModel[MessageItem | ReasoningItem | FunctionCallItem | OtherItem]):
    """An item of a Response's output."""


class ResponseUsage(ReplyModel):
    """The tokens of a call, and its cost."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: Mapping[str, Any] | None = None
    output_tokens_details: Mapping[str, Any] | None = None
    cost: str | None = Field(default=None, description="Credits charged, as a decimal string.")


class ResponseFailure(ReplyModel):
    """The reason why a Response failed."""

    code: str
    message: str


class ModelResponse(ReplyModel):
    """A Response: the settings of its request, the model's output, and its usage."""

    id: str
    object: Literal["response"]
    created_at: float
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    model: str
    output: Sequence[OutputItem]
    usage: ResponseUsage | None
    error: ResponseFailure | None
    incomplete_details: Mapping[str, Any] | None
    store: Literal[False]


class LifecycleEvent(ReplyModel):
    """The current state of the Response."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    sequence_number: int
    response: ModelResponse


class ItemEvent(ReplyModel):
    """The beginning or the end of an item."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    sequence_number: int
    output_index: int
    item: OutputItem


class PartEvent(ReplyModel):
    """The beginning or the end of a part of an item."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    sequence_number: int
    output_index: int
    content_index: int
    item_id: str
    part: ReplyPart


class DeltaEvent(ReplyModel):
    """More of a text, a refusal, reasoning, or a call's arguments."""

    type: Literal[
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
    ]
    sequence_number: int
    output_index: int
    item_id: str
    delta: str


class ErrorEvent(ReplyModel):
    """The last event of a stream that failed."""

    type: Literal["error"]
    sequence_number: int
    code: str
    message: str
    param: str | None


class OtherEvent(ReplyModel):
    """The end of a text or of arguments, an annotation, or an event of a type that only the provider defines."""

    type: str
    sequence_number: int


class ResponseStreamEvent(
    RootModel[LifecycleEvent | ItemEvent | PartEvent | DeltaEvent | ErrorEvent | OtherEvent]
):
    """An event of a streamed Response. Its name is its `type`. The stream ends with the data `[DONE]`."""
