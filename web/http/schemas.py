"""The shapes that every list and resource has on the wire."""

from typing import Annotated, Any, Self

from pydantic import Field

from shared.pagination import DEFAULT_LIMIT, MAX_LIMIT, Page
from web.http.wire_types import Between, CamelModel, Count, Id, RequestModel


class ResponseModel(CamelModel):
    """A resource, shown as the domain has it."""

    @classmethod
    def of(cls, resource: object) -> Self:
        """Show a resource."""
        return cls.model_validate(resource, from_attributes=True)

    @classmethod
    def with_secret(cls, resource: object, **secrets: Any) -> Self:
        """Show a resource together with what is shown only now."""
        known = {name: getattr(resource, name) for name in cls.model_fields if name not in secrets}
        return cls(**known, **secrets)


class PageQuery(RequestModel):
    """The parameters of a listing."""

    cursor: Id | None = Field(default=None, description="The `nextCursor` of the page before.")
    limit: Annotated[
        Count, Between(minimum=1, maximum=MAX_LIMIT), Field(description="Items on the page.")
    ] = DEFAULT_LIMIT

    @property
    def position(self) -> dict[str, Any]:
        """Where the page begins and how long it is, as the domain's listings take it."""
        return {"cursor": str(self.cursor) if self.cursor else None, "limit": self.limit}


class PageResponse(CamelModel):
    """Some resources, under their own name, and where the next page begins."""

    next_cursor: Id | None

    @classmethod
    def of(cls, page: Page[Any]) -> Self:
        """Show a page; the one field besides the cursor takes the items."""
        (items,) = cls.model_fields.keys() - {"next_cursor"}
        return cls.model_validate({items: page.items, "next_cursor": page.next_cursor}, from_attributes=True)
