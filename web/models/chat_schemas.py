"""Response models of `POST /v1/chat/completions`: a completion, or the events of a stream.

The models describe only the fields that every client relies on. Further fields of a provider are passed
through.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]


class ReplyModel(BaseModel):
    """An object of a model's reply, which may have more fields than described."""

    # A provider's own fields are passed through, so the schema of a reply must allow them.
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
    """A tool call. In a stream its parts arrive one after the other, with the same `index`."""

    index: int | None = Field(default=None, description="In a stream: the call that a part belongs to.")
    id: str | None = None
    type: str | None = Field(default=None, description="`function` or `custom`.")
    function: CalledFunction | None = None
    custom: CalledTool | None = None


class ChatReply(ReplyModel):
    """The model's message or, in a stream, the next part of it."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None
    tool_calls: Sequence[ToolCall] | None = None


class ChatChoice(ReplyModel):
    """One of the requested replies."""

    index: int
    message: ChatReply
    finish_reason: FinishReason
    logprobs: Mapping[str, Any] | None


class ChunkChoice(ReplyModel):
    """The next part of one of the replies."""

    index: int
    delta: ChatReply
    finish_reason: FinishReason | None = None
    logprobs: Mapping[str, Any] | None = None


class ChatUsage(ReplyModel):
    """The tokens of a call, and its cost."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: Mapping[str, Any] | None = None
    completion_tokens_details: Mapping[str, Any] | None = None
    cost: str | None = Field(default=None, description="Credits charged, as a decimal string.")


class ChatCompletion(ReplyModel):
    """A complete reply."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: Sequence[ChatChoice]
    usage: ChatUsage


class ChatCompletionChunk(ReplyModel):
    """A part of a streamed reply. The last one has no choice, and contains the usage if that was requested."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: Sequence[ChunkChoice]
    usage: ChatUsage | None = None


class FailureBody(ReplyModel):
    """The reason why a stream ended early."""

    message: str
    type: str
    param: str | None
    code: str


class StreamFailure(ReplyModel):
    """The last event of a stream that failed, before its terminator."""

    error: FailureBody


class ChatStreamEvent(RootModel[ChatCompletionChunk | StreamFailure]):
    """An event of a streamed completion; the stream ends with the data `[DONE]`."""
