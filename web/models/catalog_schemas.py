"""The model catalog in OpenAI's format or in Anthropic's format.

A client gets Anthropic's format if it names a version of Anthropic's API. OpenAI's format has this service's
additions (docs/specification/models.md#catalog).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

from flask import Request
from pydantic import BaseModel, ConfigDict, Field, RootModel

from shared.credits.usage.usage_reports import MODEL_WINDOW, Window
from shared.models.catalog import Endpoint, ModelEntry
from web.http.wire_types import Between, Count, SnakeRequestModel

# Both formats of the catalog have the same path. Only Anthropic's clients send this header.
VERSION = "anthropic-version"
VERSION_HEADER = {VERSION: "Requests the catalog in Anthropic's format."}
# The default and the maximum page size of Anthropic's own API.
DEFAULT_MODELS = 20
MAXIMUM_MODELS = 1000


class V1(BaseModel):
    """A JSON object of `/v1`, with OpenAI's snake_case keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Pricing(V1):
    """Prices in credits as decimal strings, for a million tokens; `request` is the price of a call.

    Cached prompt tokens, tokens written to a cache, and reasoning tokens have prices of their own.
    """

    prompt: str
    completion: str
    cached_prompt: str
    cache_write: str
    reasoning: str
    request: str
    unit: Literal["credits_per_million_tokens"]


class Architecture(V1):
    """The kinds of input and output of a model."""

    input_modalities: Sequence[str]
    output_modalities: Sequence[str]


class RecentUsage(V1):
    """The recent usage of a model by this service's callers."""

    window: Window
    tokens: int
    invocations: int


class ModelBody(V1):
    """A model of the catalog: OpenAI's Model object with the catalog's metadata."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    name: str
    description: str
    provider: str
    pricing: Pricing
    architecture: Architecture
    context_length: int | None
    max_completion_tokens: int | None
    knowledge_cutoff: str | None
    usage: RecentUsage
    supported_endpoints: Sequence[str]

    @classmethod
    def of(cls, entry: ModelEntry, usage: Mapping[str, tuple[int, int]]) -> ModelBody:
        """Return the model of a catalog entry.

        `usage` contains the tokens and the number of invocations by model.
        """
        tokens, invocations = usage.get(entry.id, (0, 0))
        return cls(
            id=entry.id,
            object="model",
            created=entry.created,
            owned_by=entry.provider,
            name=entry.name,
            description=entry.description,
            provider=entry.provider,
            pricing=Pricing(**entry.prices.show(), unit="credits_per_million_tokens"),
            architecture=Architecture(
                input_modalities=entry.input_modalities, output_modalities=entry.output_modalities
            ),
            context_length=entry.context_length,
            max_completion_tokens=entry.max_completion_tokens,
            knowledge_cutoff=entry.knowledge_cutoff,
            usage=RecentUsage(window=MODEL_WINDOW, tokens=tokens, invocations=invocations),
            supported_endpoints=[endpoint.value for endpoint in entry.supported_endpoints],
        )


class ModelList(V1):
    """All models of the catalog."""

    object: Literal["list"]
    data: Sequence[ModelBody]


class ModelsQuery(SnakeRequestModel):
    """The page of the catalog. Default: all models in OpenAI's format, 20 in Anthropic's."""

    limit: Annotated[Count, Between(minimum=1, maximum=MAXIMUM_MODELS)] | None = Field(
        default=None, description="Models on the page."
    )
    after_id: str | None = Field(default=None, description="Start after this model.")
    before_id: str | None = Field(default=None, description="End before this model.")


class MessageModelBody(V1):
    """A model in Anthropic's format."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: datetime
    lifecycle: Literal["active"]
    max_input_tokens: int | None
    max_tokens: int | None

    @classmethod
    def of(cls, entry: ModelEntry) -> MessageModelBody:
        """Return the model of an entry."""
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
    """A page of the models that support `/v1/messages`."""

    data: Sequence[MessageModelBody]
    first_id: str | None
    last_id: str | None
    has_more: bool

    @classmethod
    def of(cls, entries: Sequence[ModelEntry], query: ModelsQuery) -> MessageModelList:
        """Return a page of the models that support `/v1/messages`."""
        # Filter before paging: models that these clients cannot call would otherwise make a page shorter than
        # its limit.
        callable_ = [entry for entry in entries if entry.supports(Endpoint.MESSAGES)]
        page, has_more = page_of(callable_, query, limit=query.limit or DEFAULT_MODELS)
        return cls(
            data=[MessageModelBody.of(entry) for entry in page],
            first_id=page[0].id if page else None,
            last_id=page[-1].id if page else None,
            has_more=has_more,
        )


class ModelListing(RootModel[ModelList | MessageModelList]):
    """The catalog in the requested format."""


class OneModel(RootModel[ModelBody | MessageModelBody]):
    """A model in the requested format."""


def wants_anthropic_format(http: Request) -> bool:
    """Return whether a client names a version of Anthropic's dialect."""
    return VERSION in http.headers


def page_of(
    entries: Sequence[ModelEntry], query: ModelsQuery, *, limit: int
) -> tuple[Sequence[ModelEntry], bool]:
    """Return a page of the catalog, and whether more models follow in the direction of paging."""
    ids = [entry.id for entry in entries]
    # Ignore an unknown id: the model may have left the catalog since the last page.
    begin = ids.index(query.after_id) + 1 if query.after_id in ids else 0
    end = ids.index(query.before_id) if query.before_id in ids else len(ids)
    if end < len(ids):
        # With `before_id`, return the models directly before that id, as a client that pages back expects.
        first = max(begin, end - limit)
        return entries[first:end], first > begin
    return entries[begin : begin + limit], end - begin > limit
