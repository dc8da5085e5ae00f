"""The catalog in Anthropic's shape, for clients that name their version of it, beside OpenAI's for all others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

from flask import Request
from pydantic import Field, RootModel

from shared.models.catalog import Endpoint, ModelEntry
from web.http.wire_types import Between, Count, SnakeRequestModel
from web.models.schemas import V1, ModelBody, ModelList

VERSION = "anthropic-version"
VERSION_HEADER = {VERSION: "Asks for the catalog in Anthropic's shape."}
DEFAULT_MODELS = 20
MAXIMUM_MODELS = 1000


class ModelsQuery(SnakeRequestModel):
    """Which page of the catalog: all of it by default in OpenAI's shape, twenty models in Anthropic's."""

    limit: Annotated[Count, Between(minimum=1, maximum=MAXIMUM_MODELS)] | None = Field(
        default=None, description="Models on the page."
    )
    after_id: str | None = Field(default=None, description="Begin after this model.")
    before_id: str | None = Field(default=None, description="End before this model.")


class MessageModelBody(V1):
    """A model in Anthropic's shape."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: datetime
    lifecycle: Literal["active"]
    max_input_tokens: int | None
    max_tokens: int | None

    @classmethod
    def of(cls, entry: ModelEntry) -> MessageModelBody:
        """Describe an entry."""
        return cls(
            type="model",
            id=entry.id,
            display_name=entry.name,
            created_at=datetime.fromtimestamp(entry.created, UTC),
            lifecycle="active",
            max_input_tokens=entry.context_length,
            max_tokens=entry.max_completion_tokens,
        )


class MessageModelList(V1):
    """Some models that `/v1/messages` takes, and whether there are more."""

    data: Sequence[MessageModelBody]
    first_id: str | None
    last_id: str | None
    has_more: bool

    @classmethod
    def of(cls, entries: Sequence[ModelEntry], query: ModelsQuery) -> MessageModelList:
        """Show a page of the models that `/v1/messages` takes."""
        callable_ = [entry for entry in entries if entry.supports(Endpoint.MESSAGES)]
        page, has_more = page_of(callable_, query, limit=query.limit or DEFAULT_MODELS)
        return cls(
            data=[MessageModelBody.of(entry) for entry in page],
            first_id=page[0].id if page else None,
            last_id=page[-1].id if page else None,
            has_more=has_more,
        )


class ModelListing(RootModel[ModelList | MessageModelList]):
    """The catalog, in the shape that was asked for."""


class OneModel(RootModel[ModelBody | MessageModelBody]):
    """A model, in the shape that was asked for."""


def speaks_version(http: Request) -> bool:
    """Tell whether a client names a version of Anthropic's dialect."""
    return VERSION in http.headers


def page_of(
    entries: Sequence[ModelEntry], query: ModelsQuery, *, limit: int
) -> tuple[Sequence[ModelEntry], bool]:
    """Give a page of the catalog, and whether there are more models in the direction that was read."""
    ids = [entry.id for entry in entries]
    begin = ids.index(query.after_id) + 1 if query.after_id in ids else 0
    end = ids.index(query.before_id) if query.before_id in ids else len(ids)
    if end < len(ids):
        first = max(begin, end - limit)
        return entries[first:end], first > begin
    return entries[begin : begin + limit], end - begin > limit
