"""The keys of the operators' catalog file and what each may hold; `deploy/models.example.toml` explains them.

Prices are decimal strings, so that no binary fraction becomes money. Secrets stay in the environment, so that the
file can be shown to anyone.
"""

from datetime import UTC, date, datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from shared.credits.prices import parse_price

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
    """`[providers.<name>]`."""

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
    """One of a model's `upstreams`."""

    provider: ProviderName
    model: Name
    dialect: Literal["chat", "responses"] | None = None
    streams_only: bool | None = None


class ModelTable(_Table):
    """`[[models]]`."""

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
    """The whole file."""

    providers: dict[ProviderName, ProviderTable]
    models: Annotated[list[ModelTable], Field(min_length=1)]
