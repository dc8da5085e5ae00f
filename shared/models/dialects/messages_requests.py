"""The schemas and parsers of `POST /v1/messages` and of the request that counts a prompt's tokens.

The API documents show the schemas. Unlike the other two dialects, the schemas refuse unknown fields: no upstream
supports this dialect, so an unknown field could only be dropped. Hints that do not change the reply's meaning
(`cache_control`) are accepted and dropped. Optional fields may be null. An error names the first invalid field in
Anthropic's form.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from shared.models.dialects.requests import Dialect, Json, ParsedRequest, describe
from shared.models.errors import InvalidRequest

_TAGS = ("type", "role")


def parse_messages(body: Any) -> ParsedRequest:
    """Parse a request for a message. Raises InvalidRequest (`param` is for example `messages.0.content`)."""
    _check(body, MessagesCreation)
    _refuse_prefill(body["messages"])
    return describe(Dialect.MESSAGES, body, is_stream=bool(body.get("stream")))


def parse_prompt(body: Any) -> ParsedRequest:
    """Parse a request to count a prompt's tokens. Raises InvalidRequest."""
    _check(body, MessagesPrompt)
    return describe(Dialect.MESSAGES, body, is_stream=False)


def _check(body: Any, shape: type[BaseModel]) -> None:
    try:
        shape.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        param = ".".join(_path(body, first["loc"])) or None
        raise InvalidRequest(f"{param or 'The body'}: {_meaning(first)}.", param=param) from None


def _refuse_prefill(messages: list[Json]) -> None:
    if messages[-1]["role"] == "assistant":
        # Refuse a conversation that ends with the beginning of a reply: no upstream dialect can continue a reply.
        raise InvalidRequest(
            "The conversation must end with a user message: a reply that is already begun cannot be continued.",
            param=f"messages.{len(messages) - 1}.role",
        )


def _meaning(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "is not supported here"
    message: str = error["msg"]
    return message[:1].lower() + message[1:]


def _path(body: Any, loc: tuple[int | str, ...]) -> list[str]:
    """Return the path to an invalid field. Pydantic's `loc` also contains the tags of unions, which are left out."""
    path, value, passed = [], body, None
    for step in loc:
        if isinstance(value, dict) and value is not passed and step in map(value.get, _TAGS):
            passed = value
            continue
        if isinstance(value, list) and isinstance(step, int):
            path.append(str(step))
            value = value[step]
        elif isinstance(value, dict):
            path.append(str(step))
            value = value.get(str(step))
    return path


Hint = dict[str, Any] | None
"""An advisory object: accepted in any form, and not passed on."""


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


def _form_of(content: Any) -> str:
    return STRING if isinstance(content, str) else BLOCKS


STRING, BLOCKS = "string", "blocks"
_BLOCKS, _BY_FORM, _BY_TYPE = Tag(BLOCKS), Discriminator(_form_of), Field(discriminator="type")
_String = Annotated[str, Tag(STRING)]


class MessagesTextBlock(_Shape):
    """Text."""

    type: Literal["text"]
    text: str
    cache_control: Hint = None
    citations: list[dict[str, Any]] | None = None


class MessagesBase64Image(_Shape):
    """An image in the request."""

    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: str


class MessagesUrl(_Shape):
    """An image or document at a URL, which the upstream fetches."""

    type: Literal["url"]
    url: str


class MessagesImageBlock(_Shape):
    """An image."""

    type: Literal["image"]
    source: Annotated[MessagesBase64Image | MessagesUrl, _BY_TYPE]
    cache_control: Hint = None


_Shown = Annotated[MessagesTextBlock | MessagesImageBlock, _BY_TYPE]


class MessagesBase64Document(_Shape):
    """A PDF in the request."""

    type: Literal["base64"]
    media_type: Literal["application/pdf"]
    data: str


class MessagesTextDocument(_Shape):
    """A document of plain text."""

    type: Literal["text"]
    media_type: Literal["text/plain"]
    data: str


class MessagesContentDocument(_Shape):
    """A document of text and images."""

    type: Literal["content"]
    content: Annotated[_String | Annotated[list[_Shown], _BLOCKS], _BY_FORM]


class MessagesNoCitations(_Shape):
    """Citations switched off; they are not supported."""

    enabled: Literal[False] | None = None


class MessagesDocumentBlock(_Shape):
    """A document. A PDF needs an upstream that reads files."""

    type: Literal["document"]
    source: Annotated[
        MessagesBase64Document | MessagesTextDocument | MessagesContentDocument | MessagesUrl,
        _BY_TYPE,
    ]
    title: str | None = None
    context: str | None = None
    citations: MessagesNoCitations | None = None
    cache_control: Hint = None


_Attached = Annotated[MessagesTextBlock | MessagesImageBlock | MessagesDocumentBlock, _BY_TYPE]


class MessagesThinkingBlock(_Shape):
    """The model's thoughts of an earlier message; they are not sent to the upstream."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class MessagesRedactedThinkingBlock(_Shape):
    """Hidden thoughts of an earlier message; they are not sent to the upstream."""

    type: Literal["redacted_thinking"]
    data: str


class MessagesToolUseBlock(_Shape):
    """A tool call of the model."""

    type: Literal["tool_use"]
    id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    input: dict[str, Any]
    caller: Hint = None
    toolset_name: None = None
    cache_control: Hint = None


class MessagesToolResultBlock(_Shape):
    """The result of a tool call, or its failure."""

    type: Literal["tool_result"]
    tool_use_id: Annotated[str, Field(min_length=1)]
    content: Annotated[_String | Annotated[list[_Attached], _BLOCKS], _BY_FORM] | None = None
    is_error: bool | None = None
    toolset_name: None = None
    cache_control: Hint = None


_OfUser = Annotated[
    MessagesTextBlock | MessagesImageBlock | MessagesDocumentBlock | MessagesToolResultBlock, _BY_TYPE
]
_OfAssistant = Annotated[
    MessagesTextBlock | MessagesThinkingBlock | MessagesRedactedThinkingBlock | MessagesToolUseBlock, _BY_TYPE
]


class MessagesUserTurn(_Shape):
    """A message of the user, with results of tools."""

    role: Literal["user"]
    content: Annotated[_String | Annotated[list[_OfUser], _BLOCKS], _BY_FORM]


class MessagesAssistantTurn(_Shape):
    """An earlier message of the model."""

    role: Literal["assistant"]
    content: Annotated[_String | Annotated[list[_OfAssistant], _BLOCKS], _BY_FORM]


class MessagesSystemTurn(_Shape):
    """An instruction in the middle of a conversation."""

    role: Literal["system"]
    content: Annotated[_String | Annotated[list[MessagesTextBlock], _BLOCKS], _BY_FORM]


class MessagesTool(_Shape):
    """A tool that the caller runs. Tools that a server would run are not supported."""

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(min_length=1, max_length=128)]
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    defer_loading: Literal[False] | None = None
    allowed_callers: list[Literal["direct"]] | None = None
    input_examples: list[dict[str, Any]] | None = None
    eager_input_streaming: bool | None = None
    cache_control: Hint = None


class MessagesAutoChoice(_Shape):
    """The model may call a tool (`auto`), or must call one (`any`)."""

    type: Literal["auto", "any"]
    disable_parallel_tool_use: bool | None = None


class MessagesToolChoice(_Shape):
    """The model must call this tool."""

    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool | None = None


class MessagesNoChoice(_Shape):
    """The model must not call a tool."""

    type: Literal["none"]


class MessagesThinkingBudget(_Shape):
    """Thinking with about this many tokens."""

    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=1)]
    display: Literal["summarized", "omitted"] | None = None


class MessagesThinking(_Shape):
    """Thinking at the model's discretion, or none, or hidden."""

    type: Literal["adaptive", "between_tools", "disabled"]
    display: Literal["summarized", "omitted"] | None = None


class MessagesOutputFormat(_Shape):
    """The JSON schema of the reply."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class MessagesOutput(_Shape):
    """The effort and format of the reply."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: MessagesOutputFormat | None = None


class MessagesMetadata(_Shape):
    """The end user, as named by the caller."""

    user_id: str | None = None


class MessagesEdit(_Shape):
    """A rule that removes earlier thoughts, which are never sent anyway."""

    type: Literal["clear_thinking_20251015"]
    keep: Any = None


class MessagesContextManagement(_Shape):
    """Rules that remove content from the context; only rules without effect are accepted."""

    edits: list[MessagesEdit] | None = None


class MessagesPrompt(_Shape):
    """The prompt of a model, without settings of the reply."""

    model: Annotated[str, Field(min_length=1)]
    messages: Annotated[
        list[
            Annotated[
                MessagesUserTurn | MessagesAssistantTurn | MessagesSystemTurn, Field(discriminator="role")
            ]
        ],
        Field(min_length=1),
    ]
    system: Annotated[_String | Annotated[list[MessagesTextBlock], _BLOCKS], _BY_FORM] | None = None
    tools: list[MessagesTool] | None = None
    tool_choice: Annotated[MessagesAutoChoice | MessagesToolChoice | MessagesNoChoice, _BY_TYPE] | None = None
    thinking: Annotated[MessagesThinkingBudget | MessagesThinking, _BY_TYPE] | None = None
    output_config: MessagesOutput | None = None
    cache_control: Hint = None
    context_management: MessagesContextManagement | None = None


class MessagesCreation(MessagesPrompt):
    """A request for a message, in Anthropic's dialect."""

    max_tokens: Annotated[int, Field(ge=1)]
    stream: bool | None = None
    stop_sequences: list[Annotated[str, Field(min_length=1)]] | None = None
    temperature: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    metadata: MessagesMetadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    speed: Literal["standard"] | None = None
