"""The query parameters that pages of the console share: the position in a list, filters, and a time window."""

from typing import Annotated, Any, Literal

from pydantic import Field

from web.http.wire_types import Id, RequestModel, Text

ROWS = 50


class CursorQuery(RequestModel):
    """The position in a list: the page continues after this id."""

    cursor: Id | None = None

    @property
    def position(self) -> dict[str, Any]:
        """The keyword arguments of the domain's list functions."""
        return {"cursor": str(self.cursor) if self.cursor else None, "limit": ROWS}


FilterText = Annotated[str, Text(minimum=0, maximum=200)]
"""The value of a filter. A form sends an empty value for a field without a choice."""


class NextQuery(RequestModel):
    """The page to continue at."""

    next: FilterText = Field(default="")


class WindowQuery(RequestModel):
    """The window of the figures, up to now."""

    window: Literal["24h", "7d", "30d"] = "30d"
