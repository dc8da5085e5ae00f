"""The catalog as OpenAI's clients read it, with what this service adds (docs/specification/models.md#catalog)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from shared.credits.usage.usage_reports import MODEL_WINDOW, Window
from shared.models.catalog import ModelEntry


class V1(BaseModel):
    """A JSON object of `/v1`: snake_case keys, as OpenAI's."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Pricing(V1):
    """Credits as decimal strings: for a million tokens, and `request` for a call.

    The cached part of a prompt, the part written to a cache, and reasoning have prices of their own.
    """

    prompt: str
    completion: str
    cached_prompt: str
    cache_write: str
    reasoning: str
    request: str
    unit: Literal["credits_per_million_tokens"]


class Architecture(V1):
    """What a model takes and gives."""

    input_modalities: Sequence[str]
    output_modalities: Sequence[str]


class RecentUsage(V1):
    """How much this service's callers used a model lately."""

    window: Window
    tokens: int
    invocations: int


class ModelBody(V1):
    """A model of the catalog: OpenAI's Model object and the catalog's metadata."""

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
        """Describe an entry; `usage` has tokens and invocations by model."""
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
