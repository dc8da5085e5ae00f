"""The operators' catalog file: its keys, its parsing, and its errors (`deploy/models.example.toml` explains the keys).

A valid TOML text becomes a `Catalog`. An invalid text raises CatalogInvalid, which lists every mistake by file and key.
The pydantic tables check single keys; the functions below check rules over several tables (unique ids, existing
providers). Prices are decimal strings, so that they are exact. Secrets stay in the environment, so that the file may be
shown to anyone.
"""

import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from shared.credits.prices import Prices, parse_price
from shared.models.catalog import Catalog, Endpoint, ModelEntry, ProviderEntry, ProviderKind, Upstream
from shared.models.dialects.requests import Dialect

MAX_UPSTREAMS = 16


def _unix_seconds(value: object) -> object:
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, date):
        return int(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp())
    return value


def _written_date(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value


def _http_address(value: object) -> object:
    if not isinstance(value, str):
        return value
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must begin with http:// or https:// and name a host")
    if parts.username or parts.password:
        raise ValueError("must not hold a user name or password: the file is not secret")
    if parts.query or parts.fragment:
        raise ValueError("must not have a query or fragment")
    return value.rstrip("/")


Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Description = Annotated[str, StringConstraints(max_length=4000)]
ModelId = Annotated[
    str,
    StringConstraints(
        max_length=200, pattern=r"^[A-Za-z0-9~][A-Za-z0-9._:@+~-]*(/[A-Za-z0-9~@][A-Za-z0-9._:@+~-]*)*$"
    ),
]
ProviderName = Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Variable = Annotated[str, StringConstraints(max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HeaderName = Annotated[str, StringConstraints(max_length=100, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
HeaderValue = Annotated[str, StringConstraints(max_length=2000, pattern=r"^[\x20-\x7e]*$")]
Address = Annotated[str, StringConstraints(max_length=2000), BeforeValidator(_http_address)]
Price = Annotated[int, BeforeValidator(parse_price)]
Created = Annotated[int, Field(ge=0, le=2**40), BeforeValidator(_unix_seconds)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0, le=10**9)]
Modalities = Annotated[list[Literal["text", "image", "audio", "video", "file"]], Field(min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ProviderTable(_Table):
    """The schema of a `[providers.<name>]` table."""

    kind: Literal["openai-compatible", "scripted"] = "openai-compatible"
    base_url: Address | None = None
    dialect: Literal["chat", "responses"] = "chat"
    limit_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    api_key_env: Variable | None = None
    headers: dict[HeaderName, HeaderValue] = {}
    header_envs: dict[HeaderName, Variable] = {}
    proxy: Address | None = None
    ca_file: Name | None = None
    connect_timeout_seconds: Seconds = 5.0
    idle_timeout_seconds: Seconds = 300.0
    streams_only: bool = False


class UpstreamTable(_Table):
    """The schema of one element of a model's `upstreams`."""

    provider: ProviderName
    model: Name
    dialect: Literal["chat", "responses"] | None = None
    streams_only: bool | None = None


class ModelTable(_Table):
    """The schema of a `[[models]]` table."""

    id: ModelId
    name: Name | None = None
    description: Description = ""
    provider: Name | None = None
    created: Created = 0
    prompt_price: Price
    completion_price: Price
    cached_prompt_price: Price | None = None
    cache_write_price: Price | None = None
    reasoning_price: Price | None = None
    request_price: Price | None = None
    input_modalities: Modalities = ["text"]
    output_modalities: Modalities = ["text"]
    context_length: Count | None = None
    max_completion_tokens: Count | None = None
    knowledge_cutoff: Annotated[Name | None, BeforeValidator(_written_date)] = None
    supported_endpoints: list[Literal["chat.completions", "responses", "messages"]] = [
        "chat.completions",
        "responses",
        "messages",
    ]
    upstreams: Annotated[list[UpstreamTable], Field(min_length=1, max_length=MAX_UPSTREAMS)]
    concurrency_limit: Count | None = None
    deadline_seconds: Seconds = 600.0
    first_byte_timeout_seconds: Seconds = 120.0
    retries: Annotated[int, Field(ge=0, le=10)] = 2


class CatalogTables(_Table):
    """The schema of the whole file."""

    providers: dict[ProviderName, ProviderTable]
    models: Annotated[list[ModelTable], Field(min_length=1)]


MAX_FILE_BYTES = 64 << 20
MAX_PROBLEMS = 20
_SECRET_HEADERS = {
    "authorization": "api_key_env",
    "proxy-authorization": "header_envs",
    "api-key": "header_envs",
    "x-api-key": "header_envs",
    "cookie": "header_envs",
}
_RESERVED_HEADERS = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length"}
    | {"content-type", "host", "transfer-encoding", "x-client-request-id"}
)


class CatalogInvalid(Exception):
    """The catalog file is invalid. `problems` has one line for each mistake, with the file and key of the mistake."""

    def __init__(self, source: str, problems: list[str]) -> None:
        self.problems = [f"{source}: {problem}" for problem in problems[:MAX_PROBLEMS]]
        if len(problems) > MAX_PROBLEMS:
            self.problems.append(f"{source}: and {len(problems) - MAX_PROBLEMS} more")
        super().__init__("\n".join(self.problems))


def read_catalog(path: Path) -> Catalog:
    """Read and check a catalog file. Raises CatalogInvalid with all mistakes."""
    try:
        with path.open("rb") as file:
            # Read one byte more than allowed, to detect a file that is too large without reading all of it.
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise CatalogInvalid(str(path), [f"is larger than {MAX_FILE_BYTES >> 20} MiB"])
        return parse_catalog(content.decode(), source=str(path))
    except OSError as error:
        raise CatalogInvalid(str(path), [f"cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise CatalogInvalid(str(path), [f"is not UTF-8 at byte {error.start}"]) from error


def parse_catalog(text: str, *, source: str) -> Catalog:
    """Parse a TOML text into a catalog. `source` names the text in errors. Raises CatalogInvalid."""
    try:
        parsed = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise CatalogInvalid(source, [f"is not TOML: {error}"]) from error
    try:
        tables = CatalogTables.model_validate(parsed)
    except ValidationError as error:
        raise CatalogInvalid(source, [_described(problem, parsed) for problem in error.errors()]) from error
    # Collect all problems before raising, so that an operator can correct all of them at once.
    problems = [*_provider_problems(tables), *_model_problems(tables)]
    if problems:
        raise CatalogInvalid(source, problems)
    providers = {name: _provider(name, table) for name, table in tables.providers.items()}
    return Catalog(_model(table, providers) for table in tables.models)


def _provider_problems(tables: CatalogTables) -> Iterable[str]:
    for name, table in tables.providers.items():
        where = f"providers.{name}"
        if table.kind == "openai-compatible" and table.base_url is None:
            yield f"{where}.base_url: is required for an openai-compatible provider"
        if table.kind == "scripted" and table.base_url is not None:
            yield f"{where}.base_url: a scripted provider has no address"
        for header in table.headers:
            if (key := _SECRET_HEADERS.get(header.lower())) is not None:
                yield f"{where}.headers.{header}: is a secret; name the variable that holds it in {key}"
        for header in (*table.headers, *table.header_envs):
            # Skip secret headers, which the loop above reports.
            if header.lower() in _RESERVED_HEADERS - _SECRET_HEADERS.keys() or (
                header in table.header_envs and header.lower() == "authorization"
            ):
                yield f"{where}: the header {header} cannot be set here"


def _model_problems(tables: CatalogTables) -> Iterable[str]:
    seen: set[str] = set()
    for index, model in enumerate(tables.models):
        where = f"models[{index}] ({model.id})"
        if model.id in seen:
            yield f"{where}.id: another model has this id"
        seen.add(model.id)
        for position, upstream in enumerate(model.upstreams):
            if upstream.provider not in tables.providers:
                yield f"{where}.upstreams[{position}].provider: there is no [providers.{upstream.provider}]"
        if model.context_length and (model.max_completion_tokens or 0) > model.context_length:
            yield f"{where}.max_completion_tokens: is more than context_length"


def _provider(name: str, table: ProviderTable) -> ProviderEntry:
    return ProviderEntry(
        name=name,
        kind=ProviderKind(table.kind),
        base_url=table.base_url or "",
        dialect=Dialect(table.dialect),
        limit_field=table.limit_field,
        api_key_env=table.api_key_env,
        headers=tuple(sorted(table.headers.items())),
        header_envs=tuple(sorted(table.header_envs.items())),
        proxy=table.proxy,
        ca_file=table.ca_file,
        connect_timeout_seconds=table.connect_timeout_seconds,
        idle_timeout_seconds=table.idle_timeout_seconds,
        streams_only=table.streams_only,
    )


def _model(table: ModelTable, providers: Mapping[str, ProviderEntry]) -> ModelEntry:
    upstreams = tuple(_upstream(upstream, providers[upstream.provider]) for upstream in table.upstreams)
    return ModelEntry(
        id=table.id,
        # Use the id if there is no name, because lists for people need a name.
        name=table.name or table.id,
        description=table.description,
        provider=table.provider or upstreams[0].provider.name,
        created=table.created,
        prices=Prices.of(table),
        input_modalities=tuple(table.input_modalities),
        output_modalities=tuple(table.output_modalities),
        context_length=table.context_length,
        max_completion_tokens=table.max_completion_tokens,
        knowledge_cutoff=table.knowledge_cutoff,
        supported_endpoints=tuple(Endpoint(endpoint) for endpoint in table.supported_endpoints),
        upstreams=upstreams,
        concurrency_limit=table.concurrency_limit,
        deadline_seconds=table.deadline_seconds,
        first_byte_timeout_seconds=table.first_byte_timeout_seconds,
        retries=table.retries,
    )


def _upstream(table: UpstreamTable, provider: ProviderEntry) -> Upstream:
    dialect = Dialect(table.dialect) if table.dialect else provider.dialect
    # An upstream's own setting, even `false`, overrides the setting of its provider.
    streams_only = provider.streams_only if table.streams_only is None else table.streams_only
    return Upstream(provider=provider, model=table.model, dialect=dialect, streams_only=streams_only)


def _described(problem: Any, parsed: Mapping[str, Any]) -> str:
    """Format a pydantic error as `models[3] (maker/model).prompt_price: message`."""
    path = ""
    for part in problem["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    match problem["loc"]:
        case ("models", int(index), *_) if isinstance(table := parsed["models"][index], dict):
            path = path.replace(f"models[{index}]", f"models[{index}] ({table.get('id', 'no id')})", 1)
    message = {"missing": "is required", "extra_forbidden": "is not a known key"}.get(problem["type"])
    return f"{path}: {message or problem['msg'].removeprefix('Value error, ')}"
