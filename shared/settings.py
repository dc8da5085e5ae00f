"""Every setting of the service, read once from the environment into one frozen object.

A setting's name in the environment is its field's name in capitals; its meaning is its description, which
`deploy/environment.example` repeats and a test compares. Nothing else in the code reads the environment for
configuration.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated
from uuid import UUID

from pydantic import Field, HttpUrl, SecretStr, TypeAdapter, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

GIBIBYTE = 1 << 30


class Settings(BaseSettings):
    """The service's configuration; immutable once loaded."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True)

    database_url: str = Field(
        description="Postgres (15 or later), as postgresql://user:password@host:port/name."
    )
    migrations_database_url: str | None = Field(
        default=None,
        description="The same database as the role that owns its schema, for `migrate` alone; empty for DATABASE_URL.",
    )
    redis_url: str = Field(
        description="Valkey or Redis for messages between front and workers, as redis://host:port/0."
    )
    models_redis_url: str | None = Field(
        default=None,
        description="Valkey or Redis that writes nothing to disk, for model calls and their prompts;"
        " empty for REDIS_URL.",
    )
    blob_store: str = Field(
        description="Where file content lives: file:///path (shared by web and workers) or s3://bucket/prefix."
    )
    blob_store_reserve_bytes: int = Field(
        default=256 << 20,
        ge=0,
        description="Free space on the disk of a local store below which writes are refused, in bytes.",
    )
    base_url: str = Field(
        default="http://127.0.0.1:8080",
        description="The address clients use; links, token issuer and audience begin with it.",
    )
    encryption_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        description="Fernet keys for secrets kept in the database, comma-separated; the first encrypts, all decrypt."
    )

    s3_endpoint_url: str | None = Field(
        default=None, description="Address of an S3-compatible server; empty for the provider's own."
    )
    s3_region: str | None = Field(default=None, description="Region of the bucket.")
    s3_access_key_id: SecretStr | None = Field(
        default=None, description="Access key for the bucket; empty for the ambient credentials."
    )
    s3_secret_access_key: SecretStr | None = Field(default=None, description="Secret key for the bucket.")
    s3_checksums: bool = Field(
        default=True, description="Send checksums with S3 writes; false for servers that refuse them."
    )
    x_accel_prefix: str | None = Field(
        default=None,
        description="Internal nginx location that maps to the local blob store; set to let nginx send the bytes.",
    )

    max_upload_bytes: int = Field(
        default=5 * GIBIBYTE, gt=0, description="Largest accepted upload, in bytes."
    )
    upload_wait_seconds: float = Field(
        default=30.0, ge=0, description="Longest wait for a write to be placed before it is answered 202."
    )
    upload_grace_seconds: float = Field(
        default=10.0, gt=0, description="Time every upload has, whatever its size."
    )
    upload_minimum_bytes_per_second: int = Field(
        default=64 * 1024, gt=0, description="Slower senders are cut off with 408 once the grace has passed."
    )
    concurrent_uploads: int = Field(
        default=48,
        gt=0,
        description="Uploads one web process receives at once, shared among organizations.",
    )
    concurrent_small_bodies: int = Field(
        default=64,
        gt=0,
        description="JSON and form bodies one web process receives at once, shared among organizations.",
    )
    concurrent_downloads: int = Field(
        default=128,
        gt=0,
        description="Downloads one web process sends at once, shared among the files' organizations.",
    )
    operation_retention_days: int = Field(
        default=30, ge=30, description="How long the result of an operationId is kept for retries, in days."
    )

    scrub_interval_days: int = Field(
        default=30,
        ge=0,
        description="Local content is read again and compared with its digest this often, in days; 0 for never.",
    )
    scrub_bytes_per_minute: int = Field(
        default=GIBIBYTE, gt=0, description="Content that is read again in a minute, in bytes, at the most."
    )

    queued_imports: int = Field(
        default=1000,
        gt=0,
        description="Imports of media that may wait for one distribution; more are answered 429.",
    )
    concurrent_imports: int = Field(
        default=8,
        gt=0,
        description="Imports of media fetched at once for one distribution. Keep two or more below MEDIA_THREADS.",
    )
    max_media_bytes: int = Field(
        default=100 << 20, gt=0, description="Largest attachment that is imported, in bytes."
    )
    media_fetch_seconds: float = Field(
        default=300.0, gt=0, description="Longest time that fetching one attachment may take, in seconds."
    )
    media_grace_seconds: float = Field(
        default=10.0, gt=0, description="Time that fetching an attachment has, whatever its size, in seconds."
    )
    media_minimum_bytes_per_second: int = Field(
        default=16 * 1024,
        gt=0,
        description="Slower sources of attachments are cut off once the grace has passed, to be tried again later.",
    )
    media_attempts: int = Field(
        default=10, gt=0, description="Attempts to import an attachment before it is given up."
    )
    media_record_days: int = Field(
        default=30,
        gt=0,
        description="How long an import is remembered after it failed or its file's retention ended, in days.",
    )

    models_config: Path | None = Field(
        default=None,
        description="TOML file of providers and models; empty for the scripted model alone.",
    )
    max_model_request_bytes: int = Field(
        default=32 << 20, gt=0, description="Largest accepted body of a model call, in bytes."
    )
    queued_model_calls: int = Field(
        default=1000, gt=0, description="Model calls that may wait for a worker; more are answered 503."
    )
    concurrent_model_calls: int = Field(
        default=4096,
        gt=0,
        description="Model calls one web process has under way at once, shared among organizations.",
    )
    reserved_completion_tokens: int = Field(
        default=4096,
        gt=0,
        description="Completion tokens a model call reserves credits for at the most; the actual ones are charged.",
    )
    absent_store_is_false: bool = Field(
        default=False, description="Read a Responses request without store as store: false."
    )

    a2a_script: Path | None = Field(
        default=None,
        description="YAML script that the default agent follows instead of asking a model; for client developers.",
    )
    a2a_inline_artifact_bytes: int = Field(
        default=64 << 10,
        ge=0,
        description="Largest text an agent answers in the artifact itself, in bytes; longer ones become files.",
    )
    a2a_artifact_retention_days: int = Field(
        default=30, ge=0, description="How long files that agents make are kept, in days; 0 for no deadline."
    )
    a2a_turn_seconds: float = Field(
        default=1800.0, gt=0, description="How long an agent may take to answer one message, in seconds."
    )

    default_agent: UUID | None = Field(
        default=None,
        description="Deployment whose agent answers at the root, by its id; empty for the oldest.",
    )
    a2a_require_version: bool = Field(
        default=False, description="Refuse A2A requests without A2A-Version, as the protocol's letter has it."
    )
    a2a_push_notifications: bool = Field(
        default=True, description="Let clients have updates of their tasks posted to them."
    )
    a2a_wait_seconds: float = Field(
        default=120.0,
        gt=0,
        description="Longest wait of a blocking send; then it is answered with the task as it is.",
    )
    max_message_bytes: int = Field(
        default=16 << 20, gt=0, description="Largest accepted body of an A2A request, in bytes."
    )
    streams_per_caller: int = Field(
        default=100,
        gt=0,
        description="Streams and blocking sends that one web process holds for one credential; more are answered 429.",
    )
    streams_per_process: int = Field(
        default=4096,
        gt=0,
        description="Streams and blocking sends that one web process holds at once, shared among organizations.",
    )
    task_retention_days: int = Field(
        default=365, ge=1, description="How long a task is kept after its last change, in days."
    )

    access_token_seconds: int = Field(
        default=900, gt=0, description="Life of a Version access token, in seconds."
    )
    attribution_seconds: int = Field(
        default=3600, gt=0, description="Life of a Service-Usage-Attribution header, in seconds."
    )
    signing_key_days: int = Field(
        default=30, gt=0, description="Age at which signing keys are rotated, in days."
    )
    live_row_cache_seconds: float = Field(
        default=2.0,
        ge=0,
        le=5,
        description="How long a process may trust a row of identity it has read; revocation bites within it.",
    )
    rate_limit_per_minute: int = Field(
        default=60_000, ge=0, description="Requests a minute for one credential; 0 for no limit."
    )
    failed_logins_per_minute: int = Field(
        default=60,
        ge=0,
        description="Refused credentials a minute for one address before it is answered 429; 0 for no limit.",
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Host names requests may carry, comma-separated; empty accepts any."
    )

    trusted_proxies: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = Field(
        default=(),
        description="Networks of proxies whose X-Forwarded-For is believed, comma-separated; empty for none.",
    )

    egress_allow_private: bool = Field(
        default=False,
        description="Let media and notifications reach private addresses and any port; for development.",
    )
    egress_allow_http: bool = Field(
        default=False,
        description="Let credentials and notifications go out over plain http; for development.",
    )
    concurrent_deliveries: int = Field(
        default=64,
        gt=0,
        le=256,
        description="Messages to other services that one media worker posts at once; organizations share them.",
    )

    first_run_credits: str = Field(
        default="1000",
        pattern=r"^(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,6})?$",
        description="Credits that the organization of a first run begins with; 0 for none.",
    )
    storage_price: str = Field(
        default="0.025",
        pattern=r"^(?:0|[1-9][0-9]{0,3})(?:\.[0-9]{1,6})?$",
        description="Credits for a GiB that is stored for 30 days; 0 for none.",
    )
    storage_grace_days: int = Field(
        default=14,
        ge=0,
        le=3650,
        description="How long an organization without credits may store more, in days; nothing stored is ever lost.",
    )

    web_threads: int = Field(
        default=448,
        gt=0,
        description="Threads of each front process, made as they are needed; the requests of one organization get"
        " less than half of them.",
    )
    slot_wait_seconds: float = Field(
        default=5.0,
        ge=0,
        description="Longest wait of a request whose organization has as much under way as it may; then 429.",
    )
    database_pool_size: int = Field(
        default=16,
        gt=0,
        description="Connections to Postgres one process may hold; half as many more serve single statements.",
    )
    log_level: str = Field(default="INFO", description="DEBUG, INFO, WARNING or ERROR.")
    metrics_directory: Path | None = Field(
        default=None,
        description="Directory in which the processes of one host share their metrics, best in memory (tmpfs).",
    )
    public_metrics: bool = Field(
        default=True,
        description="Answer /metrics on the public port too; false leaves it to OPERATIONS_PORT alone.",
    )
    faults: str = Field(default="", description="Named fault points to arm, for tests only; leave empty.")

    @field_validator("encryption_keys", mode="before")
    @classmethod
    def _split_keys(cls, value: object) -> object:
        return (
            tuple(key.strip() for key in value.split(",") if key.strip()) if isinstance(value, str) else value
        )

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split_hosts(cls, value: object) -> object:
        return (
            tuple(host.strip().lower() for host in value.split(",") if host.strip())
            if isinstance(value, str)
            else value
        )

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _split_networks(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(ip_network(part.strip(), strict=False) for part in value.split(",") if part.strip())

    @field_validator("base_url")
    @classmethod
    def _plain_base_url(cls, value: str) -> str:
        TypeAdapter(HttpUrl).validate_python(value)
        return value.rstrip("/")

    @field_validator("database_url", "migrations_database_url")
    @classmethod
    def _psycopg2_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        scheme, separator, rest = value.partition("://")
        if not separator or scheme.split("+")[0] not in ("postgres", "postgresql"):
            raise ValueError("must begin with postgresql://")
        return f"postgresql+psycopg2://{rest}"


def load_settings() -> Settings:
    """Read the settings from the environment; raise pydantic's ValidationError naming what is missing or wrong."""
    return Settings()
