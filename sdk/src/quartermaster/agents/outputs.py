"""What a skill may give back, besides text and JSON values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from quartermaster.errors import QuartermasterError


@dataclass(frozen=True)
class Ask:
    """End the turn with a question: the task waits for the answer, which calls the skill again."""

    text: str


@dataclass(frozen=True)
class Status:
    """Say what the agent is doing."""

    text: str


@dataclass(frozen=True)
class FileAction:
    """Say how long the service keeps a file: until an aware time, or indefinitely without one."""

    retention_expires_at: datetime | None = None


@dataclass(frozen=True)
class Artifact:
    """A result with a name.

    Bytes and paths are stored as files of the service before they leave, and a link stands in their place: for 30
    days, or as `file` says. Text and JSON values stay in the message, unless there is a `file`.
    `extensions` is data by the URI of its extension; it is sent where the request activated that extension.
    """

    content: bytes | str | Path | Mapping[str, Any] | list[Any] = field(repr=False)
    name: str
    media_type: str | None = None
    description: str = ""
    file: FileAction | None = None
    extensions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Failed(QuartermasterError):
    """Raise this in a skill to fail the task with a sentence for the caller; others fail it without their text."""


Output = str | Ask | Status | Artifact | Path | Mapping[str, Any] | list[Any] | None
"""What a skill gives back or yields: text is streamed into one artifact, None is nothing."""
