"""All settings of the service, read once from the environment into one frozen object.

A setting's name is the name of its field in capitals. The text below a field is the setting's description, and the
comment above a group of fields is the group's heading. `make environment` writes `deploy/environment.example` from
these texts. No other module reads the environment.
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
    """The same database as the role that owns its schema, used by `migrate` only; empty for DATABASE_URL."""
    database_pooler: bool = False
    """Whether DATABASE_URL is a pooler in transaction mode (PgBouncer); `migrate` then sets the role's time limits."""
    redis_url: ValkeyAddress
    """Valkey or Redis for replies, wake-up messages and counters between processes, as redis://host:port/0."""
    broker_url: BrokerAddress | None = None
    """Broker of jobs and model calls: redis://, rediss://, sentinel://, amqp:// or amqps://; empty for REDIS_URL."""
    models_redis_url: ValkeyAddress | None = None
    """Valkey or Redis without persistence, for model calls and their prompts; empty for REDIS_URL."""
    base_url: WebAddress = "http://127.0.0.1:8080"
    """Public URL of the service; links, token issuer and audience begin with it."""
    encryption_keys: Annotated[tuple[SecretStr, ...], NoDecode, COMMA_SEPARATED]
    """Fernet keys for secrets kept in the database, comma-separated; the first encrypts, all decrypt."""
    database_pool_size: PositiveInt = 16
    """Connections to Postgres of one process; half as many again serve single statements."""

    # Stored content

    blob_store: str
    """Where file content is stored: file:///path (shared by web and workers) or s3://bucket/prefix."""
    second_blob_store: str | None = None
    """A second store, while content is moved: writes go to BLOB_STORE, reads check both."""
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
    """Send checksums with S3 writes; false for servers that reject them."""
    x_accel_prefix: str | None = None
    """Internal nginx location of the local blob store; nginx then sends content and cannot cut a download off."""
    scrub_interval_days: NonNegativeInt = 30
    """How often local content is read and compared with its digest, in days; 0 for never."""
    scrub_bytes_per_minute: PositiveInt = GIBIBYTE
    """Most content read for that comparison in a minute, in bytes."""

    # Uploads and downloads

    max_upload_bytes: PositiveInt = 5 * GIBIBYTE
    """Largest accepted upload, in bytes."""
    upload_wait_seconds: NonNegativeFloat = 30.0
    """Longest wait for an upload's final place before the response is 202, in seconds."""
    upload_grace_seconds: PositiveFloat = 10.0
    """Time that every upload has before its rate is checked, in seconds."""
    upload_minimum_bytes_per_second: PositiveInt = 64 * 1024
    """Lowest rate of an upload after that time, in bytes per second; slower ones end with 408."""
    concurrent_uploads: PositiveInt = 48
    """Uploads one web process receives at once, shared among organizations."""
    upload_kept_seconds: PositiveInt = 86_400
    """How long a resumable upload is kept after its last bytes arrived, in seconds."""
    open_uploads_per_caller: PositiveInt = 32
    """Most unfinished resumable uploads of one agent or user."""
    open_uploads_per_organization: PositiveInt = 256
    """Most unfinished resumable uploads of one paying organization."""
    concurrent_small_bodies: PositiveInt = 64
    """JSON and form bodies one web process receives at once, shared among organizations."""
    concurrent_downloads: PositiveInt = 128
    """Downloads one web process sends at once, shared among the files' organizations."""
    operation_retention_days: int = Field(default=30, ge=30)
    """How long the result of an operationId is kept for retries, in days."""

    # Messaging media

    queued_imports: PositiveInt = 1000
    """Most pending imports of one distribution; further ones are refused with 429."""
    concurrent_imports: PositiveInt = 8
    """Imports of one distribution fetched at once. Keep two or more below MEDIA_THREADS."""
    max_media_bytes: PositiveInt = 100 << 20
    """Largest attachment that is imported, in bytes."""
    media_fetch_seconds: PositiveFloat = 300.0
    """Longest time to fetch one attachment, in seconds."""
    media_grace_seconds: PositiveFloat = 10.0
    """Time to fetch an attachment before its rate is checked, in seconds."""
    media_minimum_bytes_per_second: PositiveInt = 16 * 1024
    """Lowest rate of a source after that time, in bytes per second; slower fetches are retried later."""
    media_attempts: PositiveInt = 10
    """Attempts to import an attachment before it fails."""
    media_record_days: PositiveInt = 30
    """How long an import's record is kept after it failed or its file's retention ended, in days."""
    message_wait_seconds: PositiveFloat = 600.0
    """How long a message waits for its attachments, in seconds; then it is sent without the missing ones."""

    # Models

    models_config: Path | None = None
    """TOML file of providers and models; empty for the scripted model only."""
    max_model_request_bytes: PositiveInt = 32 << 20
    """Largest accepted body of a model call, in bytes."""
    queued_model_calls: PositiveInt = 1000
    """Most model calls that wait for a worker; further ones are refused with 503."""
    concurrent_model_calls: PositiveInt = 4096
    """Model calls in progress in one web process, shared among organizations."""
    reserved_completion_tokens: PositiveInt = 4096
    """Most completion tokens for which a model call reserves credits; the actual number is charged."""
    usage_cost: bool = True
    """Include a reply's cost in credits in its usage."""
    absent_store_is_false: bool = False
    """Treat a Responses request without `store` as `store: false`."""

    # Agents

    a2a_script: Path | None = None
    """YAML script that the default agent follows instead of asking a model; for client developers."""
    a2a_inline_artifact_bytes: NonNegativeInt = 64 << 10
    """Largest text that is returned in the artifact itself, in bytes; longer texts become files."""
    a2a_artifact_retention_days: NonNegativeInt = 30
    """How long files created by agents are kept, in days; 0 for no deadline."""
    a2a_turn_seconds: PositiveFloat = 1800.0
    """Longest run of an agent for one message, in seconds."""
    a2a_remote_retry_seconds: PositiveFloat = 120.0
    """How long requests to an unreachable remote agent are retried, in seconds."""
    a2a_remote_silence_seconds: PositiveFloat = 600.0
    """Longest silence of a remote agent about a message it accepted, in seconds."""
    a2a_remote_answer_bytes: PositiveInt = 64 << 20
    """Largest response or stream accepted from a remote agent, in bytes."""
    a2a_remote_updates_per_second: PositiveInt = 500
    """Most updates per second from a remote agent for one message; further ones are delayed."""
    default_agent: UUID | None = None
    """Id of the deployment with the agent at the root address; empty for the oldest."""
    a2a_require_version: bool = False
    """Refuse A2A requests without the header A2A-Version, as the protocol requires."""
    a2a_cors_origins: Annotated[tuple[str, ...], NoDecode, COMMA_SEPARATED] = ()
    """Origins of pages that may call agents (CORS), comma-separated, `*` for any; empty for none."""
    a2a_push_notifications: bool = True
    """Offer push notifications: updates of a task are posted to its client."""
    a2a_wait_seconds: PositiveFloat = 120.0
    """Longest wait of a blocking send, in seconds; then the task's current state is returned."""
    max_message_bytes: PositiveInt = 16 << 20
    """Largest accepted body of an A2A request, in bytes."""
    streams_per_caller: PositiveInt = 100
    """Most streams and blocking sends of one credential in one web process; further ones are refused with 429."""
    streams_per_process: PositiveInt = 4096
    """Most streams and blocking sends of one web process, shared among organizations."""
    task_retention_days: int = Field(default=365, ge=1)
    """How long a task is kept after its last change, in days."""

    # Identity and access

    access_token_seconds: PositiveInt = 900
    """Lifetime of a Version access token, in seconds."""
    attribution_seconds: PositiveInt = 3600
    """Lifetime of a Service-Usage-Attribution header, in seconds."""
    signing_key_days: PositiveInt = 30
    """Age at which signing keys are rotated, in days."""
    live_row_cache_seconds: float = Field(default=2.0, ge=0, le=5)
    """How long a process may cache a row of identity, in seconds; a revocation takes effect within this time."""
    rate_limit_per_minute: NonNegativeInt = 60_000
    """Most requests per minute for one credential; 0 for no limit."""
    failed_logins_per_minute: NonNegativeInt = 60
    """Most refused credentials per minute from one address; further ones are refused with 429; 0 for no limit."""
    allowed_hosts: Annotated[
        tuple[Annotated[str, StringConstraints(to_lower=True)], ...], NoDecode, COMMA_SEPARATED
    ] = ()
    """Accepted host names of requests, comma-separated; empty for any."""
    github_issuers: Annotated[tuple[Issuer, ...], NoDecode, COMMA_SEPARATED] = (
        "https://token.actions.githubusercontent.com",
    )
    """Issuers of workflow tokens that may be exchanged, comma-separated; empty for none."""
    github_keys_file: Path | None = None
    """JSON file with the key sets of issuers that cannot be reached, an object by issuer."""
    oidc_issuer: str | None = None
    """OpenID Connect provider for console sign-in by verified email address; empty for none."""
    oidc_client_id: str | None = None
    """The console's client id at the provider; the redirect URI is BASE_URL/console/in/provider/back."""
    oidc_client_secret: SecretStr | None = None
    """The client secret for that id; empty for a public client."""
    trusted_proxies: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode, NETWORKS] = ()
    """Networks of proxies with a trusted X-Forwarded-For, comma-separated; empty for none."""

    # Requests to other services

    egress_allow_private: bool = False
    """Allow requests for media and notifications to private addresses and any port; for development."""
    egress_allow_http: bool = False
    """Allow credentials and notifications over plain http; for development."""
    concurrent_deliveries: int = Field(default=64, gt=0, le=256)
    """Messages to other services that one media worker posts at once, shared among organizations."""

    # Credits

    first_run_credits: Annotated[str, credit_amount(digits=9)] = "1000"
    """Initial credits of the organization that a first run creates; 0 for none."""
    storage_price: Annotated[str, credit_amount(digits=4)] = "0.025"
    """Price of storing one GiB for a month, in credits; 0 for no charge."""
    storage_month: Literal["30-days", "calendar"] = "30-days"
    """The month of that price: 30 days, or the calendar month (UTC) with its 28 to 31 days."""
    storage_grace_days: int = Field(default=14, ge=0, le=3650)
    """How long an organization without credits may store more, in days; stored content is never deleted for it."""
    usage_record_days: int | None = Field(default=None, ge=35)
    """How long the record of a single model call is kept, in days; unset for ever. Totals and the ledger stay."""
    payment_sources: Annotated[
        dict[Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")], PaymentSource], NoDecode, JSON
    ] = {}
    """Payment systems that add credits by signed events, JSON by name (docs/specification/credits.md#payments)."""

    # Processes

    web_threads: PositiveInt = 448
    """Threads of each web process, started on demand; one organization's requests use less than half."""
    slot_wait_seconds: NonNegativeFloat = 5.0
    """Longest wait of a request while its organization uses its whole share, in seconds; then 429."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""
    metrics_directory: Path | None = None
    """Directory in which the processes of one host share their metrics; preferably in memory (tmpfs)."""
    task_events: bool = False
    """Send Celery's task events, for Flower and `celery events`; they halve a worker's throughput."""
    public_metrics: bool = True
    """Serve /metrics on the public port too; false for OPERATIONS_PORT only."""
    faults: str = ""
    """Failpoints to arm, for tests only; leave empty."""

    @property
    def broker(self) -> str:
        """The URL of the jobs' broker."""
        return self.broker_url or self.redis_url


def load_settings() -> Settings:
    """Read the settings from the environment. Raises SettingsInvalid, whose text names each setting to correct."""
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsInvalid.of(error, Settings.model_fields) from None
