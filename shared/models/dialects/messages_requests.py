"""Reading a request of `POST /v1/messages`: held against its schema, and the first mistake named as Anthropic does."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from shared.models.dialects.requests import Dialect, Json, ParsedRequest, describe
from shared.models.errors import InvalidRequest

_TAGS = ("type", "role")


def parse_messages(body: Any) -> ParsedRequest:
    """Read a request for a message. Raises InvalidRequest (`param` is `messages.0.content`)."""
    _check(body, MessagesCreation)
    _refuse_prefill(body["messages"])
    return describe(Dialect.MESSAGES, body, is_stream=bool(body.get("stream")))


def parse_prompt(body: Any) -> ParsedRequest:
    """Read a request for the count of a prompt's tokens. Raises InvalidRequest."""
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
        raise InvalidRequest(
            "The conversation must end with a user's message: an answer that is begun cannot be continued.",
            param=f"messages.{len(messages) - 1}.role",
        )


def _meaning(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "is not supported here"
    message: str = error["msg"]
    return message[:1].lower() + message[1:]


def _path(body: Any, loc: tuple[int | str, ...]) -> list[str]:
    """Give the members on the way to an error, without the tags of unions, which pydantic counts among them."""
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
"""An object that only advises: taken in whatever form, and not passed on."""


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
    """A picture, sent along."""

    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: str


class MessagesUrl(_Shape):
    """A picture or document at an address, which the upstream fetches."""

    type: Literal["url"]
    url: str


class MessagesImageBlock(_Shape):
    """A picture."""

    type: Literal["image"]
    source: Annotated[MessagesBase64Image | MessagesUrl, _BY_TYPE]
    cache_control: Hint = None


_Shown = Annotated[MessagesTextBlock | MessagesImageBlock, _BY_TYPE]


class MessagesBase64Document(_Shape):
    """A PDF, sent along."""

    type: Literal["base64"]
    media_type: Literal["application/pdf"]
    data: str


class MessagesTextDocument(_Shape):
    """A document of plain text."""

    type: Literal["text"]
    media_type: Literal["text/plain"]
    data: str


class MessagesContentDocument(_Shape):
    """A document of text and pictures."""

    type: Literal["content"]
    content: Annotated[_String | Annotated[list[_Shown], _BLOCKS], _BY_FORM]


class MessagesNoCitations(_Shape):
    """That a document is not to be cited; citations are not supported."""

    enabled: Literal[False] | None = None


class MessagesDocumentBlock(_Shape):
    """A document; a PDF is taken by upstreams that read files."""

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
    """What the model thought in an earlier turn; it is not sent again."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class MessagesRedactedThinkingBlock(_Shape):
    """What a model thought and does not show; it is not sent again."""

    type: Literal["redacted_thinking"]
    data: str


class MessagesToolUseBlock(_Shape):
    """A call of a tool that the model made."""

    type: Literal["tool_use"]
    id: Annotated[str, Field(min_length=1)]
    name: Annotated[str, Field(min_length=1)]
    input: dict[str, Any]
    caller: Hint = None
    toolset_name: None = None
    cache_control: Hint = None


class MessagesToolResultBlock(_Shape):
    """What a tool answered, or how it failed."""

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
    """What the user says, and what tools answered."""

    role: Literal["user"]
    content: Annotated[_String | Annotated[list[_OfUser], _BLOCKS], _BY_FORM]


class MessagesAssistantTurn(_Shape):
    """What the model said before."""

    role: Literal["assistant"]
    content: Annotated[_String | Annotated[list[_OfAssistant], _BLOCKS], _BY_FORM]


class MessagesSystemTurn(_Shape):
    """An instruction in the middle of a conversation."""

    role: Literal["system"]
    content: Annotated[_String | Annotated[list[MessagesTextBlock], _BLOCKS], _BY_FORM]


class MessagesTool(_Shape):
    """A tool that the caller runs; tools that a server would run are not supported."""

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
    """The model decides whether to call a tool, or must call one."""

    type: Literal["auto", "any"]
    disable_parallel_tool_use: bool | None = None


class MessagesToolChoice(_Shape):
    """The model must call this tool."""

    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool | None = None


class MessagesNoChoice(_Shape):
    """The model must call none."""

    type: Literal["none"]


class MessagesThinkingBudget(_Shape):
    """Think for about so many tokens."""

    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=1)]
    display: Literal["summarized", "omitted"] | None = None


class MessagesThinking(_Shape):
    """Think as the model sees fit, or do not show it."""

    type: Literal["adaptive", "between_tools", "disabled"]
    display: Literal["summarized", "omitted"] | None = None


class MessagesOutputFormat(_Shape):
    """The JSON schema of the answer."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class MessagesOutput(_Shape):
    """How much effort the answer is worth, and its form."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: MessagesOutputFormat | None = None


class MessagesMetadata(_Shape):
    """Who asks, in the caller's words."""

    user_id: str | None = None


class MessagesEdit(_Shape):
    """A rule for forgetting thoughts of earlier turns, which are never sent again."""

    type: Literal["clear_thinking_20251015"]
    keep: Any = None


class MessagesContextManagement(_Shape):
    """What to leave out of the context; only what is left out anyway is taken."""

    edits: list[MessagesEdit] | None = None


class MessagesPrompt(_Shape):
    """What a model is asked, without how it is to answer."""

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
