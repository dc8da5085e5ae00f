"""Reading a request of `POST /v1/messages`: held against its schema, and the first mistake named as Anthropic does."""

from typing import Any

from pydantic import BaseModel, ValidationError

from shared.models.dialects.messages_schema import MessagesCreation, MessagesPrompt
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
