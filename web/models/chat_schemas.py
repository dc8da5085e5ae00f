"""What `POST /v1/chat/completions` answers: a completion, or the events of a stream.

Only what every client relies on is spelt out; an upstream's further fields are passed on.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]


class ReplyModel(BaseModel):
    """An object of a reply, which may hold more than is described."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())


class CalledFunction(ReplyModel):
    """A function that the model calls, with its arguments as JSON in a string."""

    name: str | None = None
    arguments: str | None = None


class CalledTool(ReplyModel):
    """A custom tool that the model calls, with its input as text."""

    name: str | None = None
    input: str | None = None


class ToolCall(ReplyModel):
    """A call of a tool; in a stream its parts come one after the other, under one `index`."""

    index: int | None = Field(default=None, description="Which call a piece belongs to, in a stream.")
    id: str | None = None
    type: str | None = Field(default=None, description="`function` or `custom`.")
    function: CalledFunction | None = None
    custom: CalledTool | None = None


class ChatReply(ReplyModel):
    """What the model says, or in a stream the next piece of it."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None
    tool_calls: Sequence[ToolCall] | None = None


class ChatChoice(ReplyModel):
    """One of the replies that were asked for."""

    index: int
    message: ChatReply
    finish_reason: FinishReason
    logprobs: Mapping[str, Any] | None


class ChunkChoice(ReplyModel):
    """The next piece of one of the replies."""

    index: int
    delta: ChatReply
    finish_reason: FinishReason | None = None
    logprobs: Mapping[str, Any] | None = None


class ChatUsage(ReplyModel):
    """How many tokens a call took, and what it cost."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: Mapping[str, Any] | None = None
    completion_tokens_details: Mapping[str, Any] | None = None
    cost: str | None = Field(default=None, description="Credits charged, as a decimal string.")


class ChatCompletion(ReplyModel):
    """A whole reply."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: Sequence[ChatChoice]
    usage: ChatUsage


class ChatCompletionChunk(ReplyModel):
    """A piece of a streamed reply; the last one has no choice, and the usage if it was asked for."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: Sequence[ChunkChoice]
    usage: ChatUsage | None = None


class FailureBody(ReplyModel):
    """Why a stream ended early."""

    message: str
    type: str
    param: str | None
    code: str


class StreamFailure(ReplyModel):
    """The event with which a stream that broke ends, before its terminator."""

    error: FailureBody


class ChatStreamEvent(RootModel[ChatCompletionChunk | StreamFailure]):
    """An event of a streamed completion; the stream ends with the data `[DONE]`."""
