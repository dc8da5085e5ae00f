"""The outputs of a skill, besides text and JSON values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from quartermaster.errors import QuartermasterError


@dataclass(frozen=True)
class Ask:
    """End the turn with a question. The task requires input; the user's reply calls the skill again."""

    text: str


@dataclass(frozen=True)
class Status:
    """A status message about the agent's progress."""

    text: str


@dataclass(frozen=True)
class FileAction:
    """The retention of an artifact's file: until a time with a time zone, or for ever without one."""

    retention_expires_at: datetime | None = None


@dataclass(frozen=True)
class Artifact:
    """A named result.

    Bytes and paths are stored as files of the service, for 30 days or as `file` specifies, and replaced by a link. Text
    and JSON values stay in the message unless `file` is set. `extensions` maps the URI of an extension to its data,
    which is sent if the request activated that extension.
    """

    content: bytes | str | Path | Mapping[str, Any] | list[Any] = field(repr=False)
    name: str
    media_type: str | None = None
    description: str = ""
    file: FileAction | None = None
    extensions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Failed(QuartermasterError):
    """Raise this in a skill to fail the task with this message. Other exceptions fail it with a fixed message."""


Output = str | Ask | Status | Artifact | Path | Mapping[str, Any] | list[Any] | None
"""The values that a skill may return or yield. Text is streamed into one artifact; None is ignored."""
