"""Response models and events of Anthropic's dialect, for the OpenAPI document."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from web.http.wire_types import SnakeRequestModel


class _Shape(BaseModel):
    # These replies are rendered by this service, so they have no extra fields of a provider, unlike other
    # dialects.
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class MessagesQuery(SnakeRequestModel):
    """Query parameters that Anthropic's clients send."""

    beta: Literal["true"] | None = Field(
        default=None, description="Sent by clients that use beta features. It has no effect."
    )


class TokenCountBody(_Shape):
    """The estimated number of tokens of a prompt."""

    input_tokens: int


class ThinkingTokensBody(_Shape):
    """Tokens of thinking, which are included in `output_tokens`."""

    thinking_tokens: int


class MessageUsageBody(_Shape):
    """The tokens of a call. Tokens that were read from or written to a cache are not included in `input_tokens`."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokensBody
    # This field is an addition of this service. The cost is known only when the call has ended.
    cost: Annotated[str | None, Field(description="Credits charged; only in the last usage of a reply.")] = (
        None
    )


class MessageTextBody(_Shape):
    """Text of the model."""

    type: Literal["text"]
    text: str


class MessageThinkingBody(_Shape):
    """Thinking of the model; `signature` is empty."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class MessageToolUseBody(_Shape):
    """A tool call of the model. Arguments that are not a JSON object are in the member `INVALID_JSON`."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


_Block = Annotated[MessageTextBody | MessageThinkingBody | MessageToolUseBody, Field(discriminator="type")]
_Reason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]


class MessageBody(_Shape):
    """A message of the model."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: Sequence[_Block]
    stop_reason: _Reason | None
    stop_sequence: str | None
    usage: MessageUsageBody


class MessageStartEvent(_Shape):
    """The beginning of a message; its usage is an estimate."""

    type: Literal["message_start"]
    message: MessageBody


class ContentBlockStartEvent(_Shape):
    """The beginning of a content block."""

    type: Literal["content_block_start"]
    index: int
    content_block: _Block


class TextDelta(_Shape):
    """More text."""

    type: Literal["text_delta"]
    text: str


class ThinkingDelta(_Shape):
    """More thinking."""

    type: Literal["thinking_delta"]
    thinking: str


class InputJsonDelta(_Shape):
    """More of the JSON of a tool's arguments."""

    type: Literal["input_json_delta"]
    partial_json: str


class ContentBlockDeltaEvent(_Shape):
    """More of a content block."""

    type: Literal["content_block_delta"]
    index: int
    delta: Annotated[TextDelta | ThinkingDelta | InputJsonDelta, Field(discriminator="type")]


class ContentBlockStopEvent(_Shape):
    """The end of a content block."""

    type: Literal["content_block_stop"]
    index: int


class StopBody(_Shape):
    """The reason why the model stopped."""

    stop_reason: _Reason
    stop_sequence: str | None


class MessageDeltaEvent(_Shape):
    """The reason why the message ends, and its usage."""

    type: Literal["message_delta"]
    delta: StopBody
    usage: MessageUsageBody


class MessageStopEvent(_Shape):
    """The end of a message."""

    type: Literal["message_stop"]


class PingEvent(_Shape):
    """Keeps the connection open while the model is silent."""

    type: Literal["ping"]


class MessageErrorBody(_Shape):
    """The error of a stream."""

    type: str
    message: str
    code: str


class MessageErrorEvent(_Shape):
    """The last event of a message that failed."""

    type: Literal["error"]
    error: MessageErrorBody


_Event = Annotated[
    MessageStartEvent
    | ContentBlockStartEvent
    | ContentBlockDeltaEvent
    | ContentBlockStopEvent
    | MessageDeltaEvent
    | MessageStopEvent
    | PingEvent
    | MessageErrorEvent,
    Field(discriminator="type"),
]


class MessageStreamEvent(RootModel[_Event]):
    """An event of a streamed message. The event's name is its `type`."""
