"""The answers and events of Anthropic's dialect, as the documents describe them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from web.http.wire_types import SnakeRequestModel


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class MessagesQuery(SnakeRequestModel):
    """What Anthropic's clients put into the address."""

    beta: Literal["true"] | None = Field(
        default=None, description="Said by clients that use previews; there are none."
    )


class TokenCountBody(_Shape):
    """How many tokens a prompt has, by the service's estimate."""

    input_tokens: int


class ThinkingTokensBody(_Shape):
    """Tokens of thoughts, which are part of the output's."""

    thinking_tokens: int


class MessageUsageBody(_Shape):
    """Tokens of a call; those that a cache had to do with are not among `input_tokens`."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokensBody
    cost: Annotated[str | None, Field(description="Credits; in the last counts alone, where shown.")] = None


class MessageTextBody(_Shape):
    """Text that the model said."""

    type: Literal["text"]
    text: str


class MessageThinkingBody(_Shape):
    """What the model thought; `signature` is empty."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class MessageToolUseBody(_Shape):
    """A tool that the model calls; arguments that are no JSON object stand under `INVALID_JSON`."""

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
    """The message as it begins; its usage is an estimate."""

    type: Literal["message_start"]
    message: MessageBody


class ContentBlockStartEvent(_Shape):
    """A block begins."""

    type: Literal["content_block_start"]
    index: int
    content_block: _Block


class TextDelta(_Shape):
    """Adds to a text."""

    type: Literal["text_delta"]
    text: str


class ThinkingDelta(_Shape):
    """Adds to a thought."""

    type: Literal["thinking_delta"]
    thinking: str


class InputJsonDelta(_Shape):
    """Adds to the JSON of a tool's arguments."""

    type: Literal["input_json_delta"]
    partial_json: str


class ContentBlockDeltaEvent(_Shape):
    """A block grows."""

    type: Literal["content_block_delta"]
    index: int
    delta: Annotated[TextDelta | ThinkingDelta | InputJsonDelta, Field(discriminator="type")]


class ContentBlockStopEvent(_Shape):
    """A block is complete."""

    type: Literal["content_block_stop"]
    index: int


class StopBody(_Shape):
    """Why the model stopped."""

    stop_reason: _Reason
    stop_sequence: str | None


class MessageDeltaEvent(_Shape):
    """Why the message ends, and what was used."""

    type: Literal["message_delta"]
    delta: StopBody
    usage: MessageUsageBody


class MessageStopEvent(_Shape):
    """The end of a message."""

    type: Literal["message_stop"]


class PingEvent(_Shape):
    """Nothing has come for a while."""

    type: Literal["ping"]


class MessageErrorBody(_Shape):
    """What went wrong."""

    type: str
    message: str
    code: str


class MessageErrorEvent(_Shape):
    """The end of a message that broke."""

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
    """An event of a streamed message, under the name of its type."""
