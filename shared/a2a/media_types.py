"""Media types: which parts of a message a behavior accepts, by its declared input modes."""

from collections.abc import Sequence

from shared.a2a.errors import ContentTypeNotSupported
from shared.a2a.types import Message, Part
from shared.a2a.updates import BehaviorSettings
from shared.errors import FieldError

DEFAULT_MODES = ("text/plain", "application/json")


def modes_of(declared: Sequence[str]) -> tuple[str, ...]:
    """Return the declared media types of a behavior, or the defaults."""
    return tuple(declared) or DEFAULT_MODES


def require_readable(message: Message, behavior: BehaviorSettings) -> None:
    """Raise ContentTypeNotSupported if a part has a media type that the behavior does not accept."""
    modes = modes_of(behavior.input_modes)
    for index, part in enumerate(message.parts):
        if not any(_matches(media_type(part), mode) for mode in modes):
            message_ = f"{media_type(part)} is none of {', '.join(modes)}"
            field = FieldError(location="body", name=f"message.parts.{index}.mediaType", message=message_)
            raise ContentTypeNotSupported(errors=[field])


def media_type(part: Part) -> str:
    """Return the media type that a part declares, or the default media type for the kind of its content."""
    if part.media_type:
        return part.media_type.partition(";")[0].strip().lower()
    if part.text is not None:
        return "text/plain"
    return "application/json" if part.has_data else "application/octet-stream"


def _matches(given: str, mode: str) -> bool:
    """Return whether an input mode of a behavior covers a media type.

    `text/plain` covers all text, and `application/json` all types with the suffix `+json`.
    """
    kind, _, name = mode.partition("/")
    if mode in ("*/*", given):
        return True
    # A model reads any text, such as Markdown or CSV.
    if name == "*" or mode == "text/plain":
        return given.startswith(f"{kind}/")
    return mode == "application/json" and given.endswith("+json")
