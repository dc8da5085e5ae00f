"""The models that all lists and resources of the API share."""

from typing import Annotated, Any, Self

from pydantic import Field

from shared.pagination import DEFAULT_LIMIT, MAX_LIMIT, Page
from web.http.wire_types import Between, CamelModel, Count, Id, RequestModel


class ResponseModel(CamelModel):
    """A resource, with the fields that the domain object has."""

    @classmethod
    def of(cls, resource: object) -> Self:
        """Return the model of a domain object."""
        return cls.model_validate(resource, from_attributes=True)

    @classmethod
    def with_secret(cls, resource: object, **secrets: Any) -> Self:
        """Return the model of a domain object together with secrets that are shown only once."""
        known = {name: getattr(resource, name) for name in cls.model_fields if name not in secrets}
        return cls(**known, **secrets)


class PageQuery(RequestModel):
    """The parameters of a list."""

    cursor: Id | None = Field(default=None, description="The `nextCursor` of the previous page.")
    limit: Annotated[
        Count, Between(minimum=1, maximum=MAX_LIMIT), Field(description="Items on the page.")
    ] = DEFAULT_LIMIT

    @property
    def position(self) -> dict[str, Any]:
        """The cursor and the limit, as arguments of the domain's list functions."""
        return {"cursor": str(self.cursor) if self.cursor else None, "limit": self.limit}


class PageResponse(CamelModel):
    """A page of resources, and the cursor of the next page."""

    next_cursor: Id | None

    @classmethod
    def of(cls, page: Page[Any]) -> Self:
        """Return the model of a page. The items go to the model's one field other than the cursor."""
        (items,) = cls.model_fields.keys() - {"next_cursor"}
        return cls.model_validate({items: page.items, "next_cursor": page.next_cursor}, from_attributes=True)
