"""Which parts an agent reads: their media types against those that its behavior declares."""

from collections.abc import Sequence

from shared.a2a.agent_turns.updates import BehaviorSettings
from shared.a2a.errors import ContentTypeNotSupported
from shared.a2a.types import Message, Part
from shared.errors import FieldError

DEFAULT_MODES = ("text/plain", "application/json")


def modes_of(declared: Sequence[str]) -> tuple[str, ...]:
    """Give the media types of a behavior that declares these, or none."""
    return tuple(declared) or DEFAULT_MODES


def require_readable(message: Message, behavior: BehaviorSettings) -> None:
    """Raise ContentTypeNotSupported for a part that the behavior does not read."""
    modes = modes_of(behavior.input_modes)
    for index, part in enumerate(message.parts):
        if not any(_matches(media_type(part), mode) for mode in modes):
            message_ = f"{media_type(part)} is none of {', '.join(modes)}"
            field = FieldError(location="body", name=f"message.parts.{index}.mediaType", message=message_)
            raise ContentTypeNotSupported(errors=[field])


def media_type(part: Part) -> str:
    """Give a part's media type: the one it names, else that of its kind."""
    if part.media_type:
        return part.media_type.partition(";")[0].strip().lower()
    if part.text is not None:
        return "text/plain"
    return "application/json" if part.has_data else "application/octet-stream"


def _matches(given: str, mode: str) -> bool:
    """Tell whether a mode covers a type; plain text covers all text, and JSON whatever is written in it."""
    kind, _, name = mode.partition("/")
    if mode in ("*/*", given):
        return True
    if name == "*" or mode == "text/plain":
        return given.startswith(f"{kind}/")
    return mode == "application/json" and given.endswith("+json")
