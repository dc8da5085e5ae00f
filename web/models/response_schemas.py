"""What `POST /v1/responses` answers: a Response, or the events of a stream.

Only what every client relies on is spelt out; an upstream's further fields, items and events are passed on.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, RootModel

from web.models.chat_schemas import ReplyModel

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class ReplyPart(ReplyModel):
    """A piece of a message or of reasoning: text, or a refusal."""

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
    """What the model thought."""

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
    """A call of a custom tool, or an item of a kind that an upstream has besides."""

    type: str


class OutputItem(RootModel[MessageItem | ReasoningItem | FunctionCallItem | OtherItem]):
    """An item of a Response's output."""


class ResponseUsage(ReplyModel):
    """How many tokens a call took, and what it cost."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: Mapping[str, Any] | None = None
    output_tokens_details: Mapping[str, Any] | None = None
    cost: str | None = Field(default=None, description="Credits charged, as a decimal string.")


class ResponseFailure(ReplyModel):
    """Why a Response failed."""

    code: str
    message: str


class ModelResponse(ReplyModel):
    """A Response: the settings of its request, what the model said, and what it took."""

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
    """The Response as it is now."""

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
    """An item begins or is complete."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    sequence_number: int
    output_index: int
    item: OutputItem


class PartEvent(ReplyModel):
    """A piece of an item begins or is complete."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    sequence_number: int
    output_index: int
    content_index: int
    item_id: str
    part: ReplyPart


class DeltaEvent(ReplyModel):
    """More of a text, a refusal, reasoning, or the arguments of a call."""

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
    """The event with which a stream that broke ends."""

    type: Literal["error"]
    sequence_number: int
    code: str
    message: str
    param: str | None


class OtherEvent(ReplyModel):
    """The end of a text or of arguments, an annotation, or an event of a kind that an upstream has besides."""

    type: str
    sequence_number: int


class ResponseStreamEvent(
    RootModel[LifecycleEvent | ItemEvent | PartEvent | DeltaEvent | ErrorEvent | OtherEvent]
):
    """An event of a streamed Response, named by its `type`; the stream ends with the data `[DONE]`."""
