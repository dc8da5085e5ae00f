"""Lists in the console: newest first, by cursor, as REST pages them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from web.http.wire_types import Id, RequestModel, Text

ROWS = 50


class CursorQuery(RequestModel):
    """Where a list goes on."""

    cursor: Id | None = None

    @property
    def position(self) -> dict[str, Any]:
        """What the domain's listings take."""
        return {"cursor": str(self.cursor) if self.cursor else None, "limit": ROWS}


FilterText = Annotated[str, Text(minimum=0, maximum=200)]
"""What a field of a filter holds; a form sends it empty where nothing was chosen."""


class NextQuery(RequestModel):
    """The page to go on to."""

    next: FilterText = Field(default="")


class WindowQuery(RequestModel):
    """How far back figures go."""

    window: Literal["24h", "7d", "30d"] = "30d"
