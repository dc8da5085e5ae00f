"""Every setting of the service, read once from the environment into one frozen object.

A setting's name is its field's name in capitals; the text below it is its meaning, the comment above a group its
heading. `make environment` writes `deploy/environment.example` from this. Nothing else reads the environment.
"""

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    StringConstraints,
    ValidationError,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shared.config.broker_urls import BrokerAddress, ValkeyAddress
from shared.config.database_urls import PostgresAddress
from shared.config.payment_sources import PaymentSource
from shared.config.setting_values import COMMA_SEPARATED, JSON, NETWORKS, Issuer, WebAddress, credit_amount
from shared.config.settings_errors import SettingsInvalid

GIBIBYTE = 1 << 30


class Settings(BaseSettings):
    """The service's configuration; immutable once loaded."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True)

    # Servers and secrets

    database_url: PostgresAddress
    """Postgres (15 or later), as postgresql://user:password@host:port/name."""
    migrations_database_url: PostgresAddress | None = None
    """The same database as the role that owns its schema, for `migrate` alone; empty for DATABASE_URL."""
    database_pooler: bool = False
    """Whether DATABASE_URL is a pooler in transaction mode (PgBouncer); `migrate` then sets the role's time limits."""
    redis_url: ValkeyAddress
    """Valkey or Redis for replies, hints and counters between processes, as redis://host:port/0."""
    broker_url: BrokerAddress | None = None
    """Broker of jobs and model calls: redis://, rediss://, sentinel://, amqp:// or amqps://; empty for REDIS_URL."""
    models_redis_url: ValkeyAddress | None = None
    """Valkey or Redis that writes nothing to disk, for model calls and their prompts; empty for REDIS_URL."""
    base_url: WebAddress = "http://127.0.0.1:8080"
    """The address clients use; links, token issuer and audience begin with it."""
    encryption_keys: Annotated[tuple[SecretStr, ...], NoDecode, COMMA_SEPARATED]
    """Fernet keys for secrets kept in the database, comma-separated; the first encrypts, all decrypt."""
    database_pool_size: PositiveInt = 16
    """Connections to Postgres one process may hold; half as many more serve single statements."""

    # Stored content

    blob_store: str
    """Where file content lives: file:///path (shared by web and workers) or s3://bucket/prefix."""
    second_blob_store: str | None = None
    """Another store, while content is moved: writes go to BLOB_STORE, reads find what is in either."""
    blob_store_reserve_bytes: NonNegativeInt = 256 << 20
    """Free space on the disk of a local store below which writes are refused, in bytes."""
    s3_endpoint_url: str | None = None
    """Address of an S3-compatible server; empty for the provider's own."""
    s3_region: str | None = None
    """Region of the bucket."""
    s3_access_key_id: SecretStr | None = None
    """Access key for the bucket; empty for the ambient credentials."""
    s3_secret_access_key: SecretStr | None = None
    """Secret key for the bucket."""
    s3_checksums: bool = True
    """Send checksums with S3 writes; false for servers that refuse them."""
    x_accel_prefix: str | None = None
    """Internal nginx location of the local blob store, to let nginx send the bytes; none can be broken off."""
    scrub_interval_days: NonNegativeInt = 30
    """Local content is read again and compared with its digest this often, in days; 0 for never."""
    scrub_bytes_per_minute: PositiveInt = GIBIBYTE
    """Content that is read again in a minute, in bytes, at the most."""

    # Uploads and downloads

    max_upload_bytes: PositiveInt = 5 * GIBIBYTE
    """Largest accepted upload, in bytes."""
    upload_wait_seconds: NonNegativeFloat = 30.0
    """Longest wait for a write to be placed before it is answered 202."""
    upload_grace_seconds: PositiveFloat = 10.0
    """Time every upload has, whatever its size."""
    upload_minimum_bytes_per_second: PositiveInt = 64 * 1024
    """Slower senders are cut off with 408 once the grace has passed."""
    concurrent_uploads: PositiveInt = 48
    """Uploads one web process receives at once, shared among organizations."""
    upload_kept_seconds: PositiveInt = 86_400
    """Bytes of a resumable upload are kept this long after the last of them came."""
    open_uploads_per_caller: PositiveInt = 32
    """Resumable uploads that one agent or user has unfinished at once, at the most."""
    open_uploads_per_organization: PositiveInt = 256
    """Resumable uploads that one paying organization has unfinished at once, at the most."""
    concurrent_small_bodies: PositiveInt = 64
    """JSON and form bodies one web process receives at once, shared among organizations."""
    concurrent_downloads: PositiveInt = 128
    """Downloads one web process sends at once, shared among the files' organizations."""
    operation_retention_days: int = Field(default=30, ge=30)
    """How long the result of an operationId is kept for retries, in days."""

    # Messaging media

    queued_imports: PositiveInt = 1000
    """Imports of media that may wait for one distribution; more are answered 429."""
    concurrent_imports: PositiveInt = 8
    """Imports of media fetched at once for one distribution. Keep two or more below MEDIA_THREADS."""
    max_media_bytes: PositiveInt = 100 << 20
    """Largest attachment that is imported, in bytes."""
    media_fetch_seconds: PositiveFloat = 300.0
    """Longest time that fetching one attachment may take, in seconds."""
    media_grace_seconds: PositiveFloat = 10.0
    """Time that fetching an attachment has, whatever its size, in seconds."""
    media_minimum_bytes_per_second: PositiveInt = 16 * 1024
    """Slower sources of attachments are cut off once the grace has passed, to be tried again later."""
    media_attempts: PositiveInt = 10
    """Attempts to import an attachment before it is given up."""
    media_record_days: PositiveInt = 30
    """How long an import is remembered after it failed or its file's retention ended, in days."""
    message_wait_seconds: PositiveFloat = 600.0
    """How long a message waits for its attachments; then it is sent without what has not come, in seconds."""

    # Models

    models_config: Path | None = None
    """TOML file of providers and models; empty for the scripted model alone."""
    max_model_request_bytes: PositiveInt = 32 << 20
    """Largest accepted body of a model call, in bytes."""
    queued_model_calls: PositiveInt = 1000
    """Model calls that may wait for a worker; more are answered 503."""
    concurrent_model_calls: PositiveInt = 4096
    """Model calls one web process has under way at once, shared among organizations."""
    reserved_completion_tokens: PositiveInt = 4096
    """Completion tokens a model call reserves credits for at the most; the actual ones are charged."""
    usage_cost: bool = True
    """Show in the usage of a reply what it cost, in credits."""
    absent_store_is_false: bool = False
    """Read a Responses request without store as store: false."""

    # Agents

    a2a_script: Path | None = None
    """YAML script that the default agent follows instead of asking a model; for client developers."""
    a2a_inline_artifact_bytes: NonNegativeInt = 64 << 10
    """Largest text an agent answers in the artifact itself, in bytes; longer ones become files."""
    a2a_artifact_retention_days: NonNegativeInt = 30
    """How long files that agents make are kept, in days; 0 for no deadline."""
    a2a_turn_seconds: PositiveFloat = 1800.0
    """How long an agent may take to answer one message, in seconds."""
    a2a_remote_retry_seconds: PositiveFloat = 120.0
    """How long an agent that runs elsewhere and cannot be reached is tried again, in seconds."""
    a2a_remote_silence_seconds: PositiveFloat = 600.0
    """How long an agent that runs elsewhere may say nothing about a message it has taken, in seconds."""
    a2a_remote_answer_bytes: PositiveInt = 64 << 20
    """Largest answer or stream taken from an agent that runs elsewhere, in bytes."""
    a2a_remote_updates_per_second: PositiveInt = 500
    """Updates a second that an agent that runs elsewhere may say for one message; more are slowed down."""
    default_agent: UUID | None = None
    """Deployment whose agent answers at the root, by its id; empty for the oldest."""
    a2a_require_version: bool = False
    """Refuse A2A requests without A2A-Version, as the protocol's letter has it."""
    a2a_cors_origins: Annotated[tuple[str, ...], NoDecode, COMMA_SEPARATED] = ()
    """Origins whose pages may talk to agents (CORS), comma-separated, `*` for any; empty for none."""
    a2a_push_notifications: bool = True
    """Let clients have updates of their tasks posted to them."""
    a2a_wait_seconds: PositiveFloat = 120.0
    """Longest wait of a blocking send; then it is answered with the task as it is."""
    max_message_bytes: PositiveInt = 16 << 20
    """Largest accepted body of an A2A request, in bytes."""
    streams_per_caller: PositiveInt = 100
    """Streams and blocking sends that one web process holds for one credential; more are answered 429."""
    streams_per_process: PositiveInt = 4096
    """Streams and blocking sends that one web process holds at once, shared among organizations."""
    task_retention_days: int = Field(default=365, ge=1)
    """How long a task is kept after its last change, in days."""

    # Identity and access

    access_token_seconds: PositiveInt = 900
    """Life of a Version access token, in seconds."""
    attribution_seconds: PositiveInt = 3600
    """Life of a Service-Usage-Attribution header, in seconds."""
    signing_key_days: PositiveInt = 30
    """Age at which signing keys are rotated, in days."""
    live_row_cache_seconds: float = Field(default=2.0, ge=0, le=5)
    """How long a process may trust a row of identity it has read; revocation takes effect within it."""
    rate_limit_per_minute: NonNegativeInt = 60_000
    """Requests a minute for one credential; 0 for no limit."""
    failed_logins_per_minute: NonNegativeInt = 60
    """Refused credentials a minute for one address before it is answered 429; 0 for no limit."""
    allowed_hosts: Annotated[
        tuple[Annotated[str, StringConstraints(to_lower=True)], ...], NoDecode, COMMA_SEPARATED
    ] = ()
    """Host names requests may carry, comma-separated; empty accepts any."""
    github_issuers: Annotated[tuple[Issuer, ...], NoDecode, COMMA_SEPARATED] = (
        "https://token.actions.githubusercontent.com",
    )
    """Issuers whose workflow tokens are exchanged, comma-separated; empty for none."""
    github_keys_file: Path | None = None
    """JSON file of issuers' key sets, an object by issuer, for those that cannot be reached."""
    oidc_issuer: str | None = None
    """OpenID Connect provider that users may sign in to the console with, by their verified address; empty for none."""
    oidc_client_id: str | None = None
    """The console's client id at the provider, which redirects to BASE_URL/console/in/provider/back."""
    oidc_client_secret: SecretStr | None = None
    """Its client secret; empty for a public client."""
    trusted_proxies: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode, NETWORKS] = ()
    """Networks of proxies whose X-Forwarded-For is believed, comma-separated; empty for none."""

    # Requests to other services

    egress_allow_private: bool = False
    """Let media and notifications reach private addresses and any port; for development."""
    egress_allow_http: bool = False
    """Let credentials and notifications go out over plain http; for development."""
    concurrent_deliveries: int = Field(default=64, gt=0, le=256)
    """Messages to other services that one media worker posts at once; organizations share them."""

    # Credits

    first_run_credits: Annotated[str, credit_amount(digits=9)] = "1000"
    """Credits that the organization of a first run begins with; 0 for none."""
    storage_price: Annotated[str, credit_amount(digits=4)] = "0.025"
    """Credits for a GiB that is stored for a month; 0 for none."""
    storage_month: Literal["30-days", "calendar"] = "30-days"
    """A month of that price: 30 days, or the calendar month (UTC) that a day is in, of 28 to 31."""
    storage_grace_days: int = Field(default=14, ge=0, le=3650)
    """How long an organization without credits may store more, in days; nothing stored is ever lost."""
    usage_record_days: int | None = Field(default=None, ge=35)
    """How long the record of a single model call is kept, in days; for ever if unset. Sums and the ledger stay."""
    payment_sources: Annotated[
        dict[Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")], PaymentSource], NoDecode, JSON
    ] = {}
    """Payment systems whose signed events add credits, JSON by name (docs/specification/credits.md#payments)."""

    # Processes

    web_threads: PositiveInt = 448
    """Threads of each front process, made as they are needed; an organization's requests get less than half."""
    slot_wait_seconds: NonNegativeFloat = 5.0
    """Longest wait of a request whose organization has as much under way as it may; then 429."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""
    metrics_directory: Path | None = None
    """Directory in which the processes of one host share their metrics, best in memory (tmpfs)."""
    task_events: bool = False
    """Send Celery's task events, for Flower and `celery events`; they cost half of what a worker can do."""
    public_metrics: bool = True
    """Answer /metrics on the public port too; false leaves it to OPERATIONS_PORT alone."""
    faults: str = ""
    """Named fault points to arm, for tests only; leave empty."""

    @property
    def broker(self) -> str:
        """The address of the broker of jobs."""
        return self.broker_url or self.redis_url


def load_settings() -> Settings:
    """Read the settings from the environment. Raises SettingsInvalid, which says what to set."""
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsInvalid.of(error, Settings.model_fields) from None
