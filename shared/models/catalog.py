"""The catalog: the models, their prices, and the upstreams that serve them (docs/specification/models.md#catalog).

A catalog is immutable. `catalog_file` replaces it when the operators' file changes. Prices are whole micro-credits per
million tokens, never floats.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from shared.credits.prices import Prices
from shared.models.dialects import ParsedRequest, upstream_body
from shared.models.dialects.requests import Dialect
from shared.models.errors import InvalidRequest


class ProviderKind(StrEnum):
    """The protocol of a provider."""

    OPENAI_COMPATIBLE = "openai-compatible"
    SCRIPTED = "scripted"


class Endpoint(StrEnum):
    """A creation endpoint of this service that can call a model."""

    CHAT_COMPLETIONS = "chat.completions"
    RESPONSES = "responses"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEntry:
    """A provider as the operators configured it.

    The entry contains the names of the environment variables with the provider's secrets, never a secret.
    """

    name: str
    kind: ProviderKind
    base_url: str = ""
    dialect: Dialect = Dialect.CHAT
    limit_field: str = "max_completion_tokens"
    api_key_env: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    header_envs: tuple[tuple[str, str], ...] = ()
    proxy: str | None = None
    ca_file: str | None = None
    connect_timeout_seconds: float = 5.0
    idle_timeout_seconds: float = 300.0
    streams_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A provider that serves a model, the model's name at this provider, and the dialect of requests.

    `streams_only` is whether the upstream supports streamed replies only.
    """

    provider: ProviderEntry
    model: str
    dialect: Dialect
    streams_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model that callers may name. `created` is in Unix seconds."""

    id: str
    name: str
    description: str
    provider: str
    created: int
    prices: Prices
    input_modalities: tuple[str, ...]
    output_modalities: tuple[str, ...]
    context_length: int | None
    max_completion_tokens: int | None
    knowledge_cutoff: str | None
    supported_endpoints: tuple[Endpoint, ...]
    upstreams: tuple[Upstream, ...]
    concurrency_limit: int | None
    deadline_seconds: float
    first_byte_timeout_seconds: float
    retries: int

    @property
    def produces_text(self) -> bool:
        """Whether the model's output includes text. `GET /v1/models` lists only such models."""
        return "text" in self.output_modalities

    def supports(self, endpoint: Endpoint) -> bool:
        """Return whether the model may be called through this endpoint."""
        return self.produces_text and endpoint in self.supported_endpoints


class Catalog:
    """All models at one moment; immutable."""

    __slots__ = ("_by_id", "entries", "providers")

    def __init__(self, models: Iterable[ModelEntry]) -> None:
        """Create a catalog of models with unique ids, in the order in which they are listed."""
        # Make the mapping read-only, because all threads of the process share the catalog.
        self._by_id: Mapping[str, ModelEntry] = MappingProxyType({model.id: model for model in models})
        self.entries: tuple[ModelEntry, ...] = tuple(
            model for model in self._by_id.values() if model.produces_text
        )
        """The text-producing models, in the file's order."""
        self.providers: frozenset[ProviderEntry] = frozenset(
            upstream.provider for model in self._by_id.values() for upstream in model.upstreams
        )

    def find(self, model_id: str) -> ModelEntry | None:
        """Return the model with exactly this id, text-producing or not, or None."""
        return self._by_id.get(model_id)

    def __len__(self) -> int:
        """Return the number of models."""
        return len(self._by_id)


def upstreams_for(entry: ModelEntry, request: ParsedRequest) -> ModelEntry:
    """Return the entry with only the upstreams that can express the request in their dialect.

    If no upstream remains, raises InvalidRequest with the name of a field that prevents the translation.
    """
    # Skip the trial translation in the usual case: it would take as long as parsing the body again.
    if all(upstream.dialect is request.dialect for upstream in entry.upstreams):
        return entry
    translatable, refusal = [], InvalidRequest()
    for upstream in entry.upstreams:
        try:
            _require_translatable(request, upstream)
        except InvalidRequest as error:
            refusal = error
        else:
            translatable.append(upstream)
    if not translatable:
        raise refusal
    return replace(entry, upstreams=tuple(translatable))


def _require_translatable(request: ParsedRequest, upstream: Upstream) -> None:
    if upstream.dialect is not request.dialect:
        upstream_body(request, upstream.dialect, upstream.model)
