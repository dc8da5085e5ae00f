"""In which form a reply is given, of the media types that a client takes (`acceptedOutputModes`)."""

from collections.abc import Sequence
from enum import Enum


class ReplyForm(Enum):
    """A form that a model can be asked for: its media type, and the suffix of a file that holds it."""

    TEXT = ("text/plain", ".txt")
    MARKDOWN = ("text/markdown", ".md")
    JSON = ("application/json", ".json")

    @property
    def media_type(self) -> str:
        """What the reply's part or file says it is."""
        return self.value[0]

    @property
    def suffix(self) -> str:
        """How the name of a file in this form ends."""
        return self.value[1]


def choose_form(accepted: Sequence[str]) -> ReplyForm:
    """Choose the first form that the client takes; text where it says nothing, or nothing that we write."""
    for mode in accepted:
        for form in ReplyForm:
            if _takes(mode, form.media_type):
                return form
    return ReplyForm.TEXT


def _takes(mode: str, media_type: str) -> bool:
    """Tell whether a media type or range, as `text/*`, covers a media type; parameters do not matter."""
    kind, _, subtype = mode.partition(";")[0].strip().lower().partition("/")
    wanted, _, written = media_type.partition("/")
    return kind in ("*", wanted) and subtype in ("*", written)
