"""The classes of a skill's outputs. A skill may also return or yield text and JSON values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from quartermaster.errors import QuartermasterError


@dataclass(frozen=True)
class Ask:
    """A question to the user, which ends the current run of the skill. The user's reply calls the skill again."""

    text: str


@dataclass(frozen=True)
class Status:
    """A status message about the agent's progress."""

    text: str


@dataclass(frozen=True)
class FileAction:
    """The retention of an artifact's file. The time needs a time zone. Without a time, the file never expires."""

    retention_expires_at: datetime | None = None


@dataclass(frozen=True)
class Artifact:
    """A named result of a skill.

    Bytes and paths are stored as files of the service, and the message contains a link. The files are kept for 30 days,
    or as `file` specifies. Text and JSON values stay in the message unless `file` is set. `extensions` maps the URI of
    an extension to data. The data is sent if the request activated that extension.
    """

    content: bytes | str | Path | Mapping[str, Any] | list[Any] = field(repr=False)
    name: str
    media_type: str | None = None
    description: str = ""
    file: FileAction | None = None
    extensions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Failed(QuartermasterError):
    """A skill raises this exception to fail its task with this message. Other exceptions send a fixed message."""


Output = str | Ask | Status | Artifact | Path | Mapping[str, Any] | list[Any] | None
"""The values that a skill may return or yield. All text is streamed into one artifact, and None is ignored."""
