"""The keys of a script and their allowed values. `README.md` documents the keys for authors.

Short forms (`status: Looking`, `complete:`) are expanded here. `script_parser.py` checks the order of steps and rules.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal, Self

import regex
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

MAX_PATTERN_CHARACTERS = 1000
MAX_DELAY_SECONDS = 3600.0
MAX_FILE_BYTES = 64 << 20
MAX_REPEATS = 10_000

Text = Annotated[str, StringConstraints(max_length=1 << 20)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Seconds = Annotated[float, Field(ge=0, le=MAX_DELAY_SECONDS)]
Members = dict[str, Any]
Uris = list[Annotated[str, StringConstraints(min_length=1, max_length=2000)]]


def _as_content(value: object) -> object:
    """Read `complete: Done` as its text, and `complete:` as no content."""
    if value is None:
        return {}
    return {"text": value} if isinstance(value, str) else value


def _as_part(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


def _as_echo(value: object) -> object:
    return {"as": value} if isinstance(value, str) else value


def _as_error(value: object) -> object:
    return {"reason": value} if isinstance(value, str) else value


def _base64(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        # Remove white space, because authors break long base64 into lines and `validate` would refuse the breaks.
        return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64") from None


def _pattern(value: object) -> object:
    if not isinstance(value, str):
        return value
    if len(value) > MAX_PATTERN_CHARACTERS:
        raise ValueError(f"must have at most {MAX_PATTERN_CHARACTERS} characters")
    try:
        # Compile the expression now, so that its author gets the line of a wrong expression instead of a failed task.
        regex.compile(value)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return value


Bytes = Annotated[bytes, BeforeValidator(_base64)]
Pattern = Annotated[str, BeforeValidator(_pattern)]


class _Table(BaseModel):
    # Refuse unknown keys, which are typing mistakes, and conversions (`"5"` to 5), which would hide mistakes.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def given(self, *names: str) -> list[str]:
        """Return which of these keys the file contains, even if the key has no value."""
        # Do not check the values: the key `complete:` is present but has no value.
        return [name for name in names if name in self.model_fields_set]

    def require_one(self, *names: str) -> None:
        """Raise ValueError unless the file has exactly one of these keys."""
        given = self.given(*names)
        if len(given) != 1:
            stands = f"there are {' and '.join(given)}" if given else "there is none"
            raise ValueError(f"must hold exactly one of {', '.join(names)}; {stands}")


class FileTable(_Table):
    """`file`: bytes that become a stored file. `size_bytes` generates that many bytes, the same each time."""

    name: Name
    media_type: Name = "application/octet-stream"
    text: Text | None = None
    base64: Bytes | None = None
    size_bytes: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)] | None = None

    @model_validator(mode="after")
    def _require_one_key(self) -> Self:
        self.require_one("text", "base64", "size_bytes")
        return self


class _PartFields(_Table):
    text: Text | None = None
    data: Any = None
    raw: Bytes | None = None
    url: Name | None = None
    file: FileTable | None = None
    filename: Name | None = None
    media_type: Name | None = None
    metadata: Members | None = None


class PartTable(_PartFields):
    """One part of a message or artifact."""

    @model_validator(mode="after")
    def _require_one_key(self) -> Self:
        self.require_one("text", "data", "raw", "url", "file")
        return self


PartForm = Annotated[PartTable, BeforeValidator(_as_part)]


class ContentTable(_Table):
    """The content of a message: `text` or `parts`, or none. `event_metadata` becomes the event's metadata."""

    text: Text | None = None
    parts: Annotated[list[PartForm], Field(min_length=1)] | None = None
    metadata: Members | None = None
    extensions: Uris = []
    event_metadata: Members | None = None

    @model_validator(mode="after")
    def _require_one_key(self) -> Self:
        if len(self.given("text", "parts")) == 2:  # noqa: PLR2004 (both)
            raise ValueError("must hold text or parts, not both")
        if not self.given("text", "parts") and self.given("metadata", "extensions"):
            raise ValueError("has nothing to say: metadata and extensions belong to text or parts")
        return self


class ArtifactTable(_PartFields):
    """`artifact`: one part, several `parts`, or `chunks` that are sent at intervals of `every` seconds."""

    id: Name | None = None
    name: Text | None = None
    description: Text | None = None
    parts: Annotated[list[PartForm], Field(min_length=1)] | None = None
    chunks: Annotated[list[PartForm], Field(min_length=1, max_length=MAX_REPEATS)] | None = None
    every: Seconds = 0.0
    append: bool = False
    last_chunk: bool = True
    extensions: Uris = []
    event_metadata: Members | None = None

    @model_validator(mode="after")
    def _require_one_key(self) -> Self:
        self.require_one("text", "data", "raw", "url", "file", "parts", "chunks")
        if self.given("parts", "chunks") and self.given("filename", "media_type"):
            raise ValueError("has several parts: filename and media_type belong to each of them")
        if self.given("every") and not self.given("chunks"):
            raise ValueError("has no chunks, between which every could wait")
        return self


class AskTable(ContentTable):
    """`input_required` and `auth_required`; `then` has rules for the reply."""

    then: Annotated[list[RuleTable], Field(min_length=1)] | None = None


class EchoTable(_Table):
    """`echo`: return the received message."""

    # `as` is a keyword of Python.
    form: Literal["message", "status", "artifact", "complete"] = Field(alias="as")
    id: Name | None = None


class ErrorTable(_Table):
    """`error`: refuse the request with one of the protocol's errors, or a general one."""

    reason: Literal[
        "TASK_NOT_FOUND",
        "TASK_NOT_CANCELABLE",
        "PUSH_NOTIFICATION_NOT_SUPPORTED",
        "UNSUPPORTED_OPERATION",
        "CONTENT_TYPE_NOT_SUPPORTED",
        "INVALID_AGENT_RESPONSE",
        "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
        "EXTENSION_SUPPORT_REQUIRED",
        "VERSION_NOT_SUPPORTED",
        "INVALID_PARAMS",
        "PERMISSION_DENIED",
        "RATE_LIMITED",
        "UNAVAILABLE",
    ]
    message: Name | None = None
    retry_after_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None


class RepeatTable(_Table):
    """`repeat`: the same steps several times. `${n}` is the number of the repetition."""

    times: Annotated[int, Field(ge=0, le=MAX_REPEATS)]
    steps: Annotated[list[StepTable], Field(min_length=1)]


Content = Annotated[ContentTable | None, BeforeValidator(_as_content)]
Ask = Annotated[AskTable | None, BeforeValidator(_as_content)]
Artifact = Annotated[ArtifactTable, BeforeValidator(_as_part)]
Echo = Annotated[EchoTable, BeforeValidator(_as_echo)]
Error = Annotated[ErrorTable, BeforeValidator(_as_error)]


class StepTable(_Table):
    """One step: exactly one key, which names the action."""

    status: Content = None
    artifact: Artifact | None = None
    delay: Seconds | None = None
    input_required: Ask = None
    auth_required: Ask = None
    complete: Content = None
    fail: Content = None
    reject: Content = None
    cancel: Content = None
    message: Content = None
    echo: Echo | None = None
    error: Error | None = None
    repeat: RepeatTable | None = None
    hang: Literal[True] | None = None
    silence: Literal[True] | None = None
    crash: Literal[True] | None = None

    @model_validator(mode="after")
    def _require_one_key(self) -> Self:
        self.require_one(*type(self).model_fields)
        return self

    @property
    def verb(self) -> str:
        """The step's key."""
        return next(iter(self.model_fields_set))


class MatchTable(_Table):
    """`match`: the conditions, all of which a message must meet."""

    message_id_prefix: Name | None = None
    text: Text | None = None
    contains: Name | None = None
    regex: Pattern | None = None
    ignore_case: bool = False

    @model_validator(mode="after")
    def _require_condition(self) -> Self:
        if not self.given("message_id_prefix", "text", "contains", "regex"):
            raise ValueError("must hold message_id_prefix, text, contains or regex")
        return self


class RuleTable(_Table):
    """The steps for messages that match, or for all messages if there is no `match`."""

    name: Name | None = None
    match: MatchTable | None = None
    steps: Annotated[list[StepTable], Field(min_length=1)]


class ScriptTables(_Table):
    """The whole file."""

    rules: Annotated[list[RuleTable], Field(min_length=1)]
