"""The services of a web process. They are created once from the settings, and every handler gets them."""

from dataclasses import dataclass

import redis

from shared.config.settings import Settings
from shared.db.database import Database
from shared.fairness.admission import Pool
from shared.files.blobs.base import BlobStore
from shared.files.blobs.recent_checks import RecentChecks
from shared.files.stores import open_configured_store
from shared.identity.authentication.authenticator import Authenticator
from shared.identity.authentication.revalidation import CallerRevalidator
from shared.identity.authentication.revocation_watcher import RevocationWatcher
from shared.identity.sign_in.oidc_provider import SignInProvider
from shared.identity.tokens.jwks_client import IssuerKeys
from shared.identity.tokens.signing_keys import SigningKeys
from shared.messaging.broker import Broker
from shared.messaging.publisher import Publisher, create_celery
from shared.messaging.valkey import connect_valkey
from web.dependencies.agent_services import AgentServices, build_agent_services
from web.dependencies.credential_lookups import CredentialLookups
from web.dependencies.model_services import ModelServices, build_model_services
from web.dependencies.pools import Pools, build_pools
from web.dependencies.rate_limits import RateLimiter
from web.http.receive_deadlines import BodyReceiver

# Nearly every request checks a rate limit, so a Valkey that hangs must not delay a request for longer.
VALKEY_TIMEOUT_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that handlers use."""

    settings: Settings
    database: Database
    blobs: BlobStore
    recent_checks: RecentChecks
    signing_keys: SigningKeys
    issuer_keys: IssuerKeys
    sign_in_provider: SignInProvider
    authenticator: Authenticator
    revalidator: CallerRevalidator
    running: RevocationWatcher
    pools: Pools
    lookups: CredentialLookups
    valkey: redis.Redis
    broker: Broker
    rate_limiter: RateLimiter
    receptions: BodyReceiver
    small_bodies: BodyReceiver
    models: ModelServices
    agents: AgentServices


def build_services(settings: Settings) -> Services:
    """Create the services. A service opens its connections at first use, so web processes can fork first."""
    celery = create_celery(settings.broker)
    celery.conf.task_send_sent_event = settings.task_events
    database = Database.of(settings, pool_size=settings.database_pool_size, publish=Publisher(celery).publish)
    signing_keys = SigningKeys(database, settings)
    authenticator = Authenticator(database, settings, signing_keys)
    revalidator = CallerRevalidator(database)
    pools = build_pools(settings)
    valkey = connect_valkey(settings.redis_url, timeout_seconds=VALKEY_TIMEOUT_SECONDS)
    return Services(
        settings=settings,
        database=database,
        blobs=open_configured_store(settings, database),
        recent_checks=RecentChecks(),
        signing_keys=signing_keys,
        revalidator=revalidator,
        running=RevocationWatcher(revalidator),
        issuer_keys=IssuerKeys(settings),
        sign_in_provider=SignInProvider(settings),
        authenticator=authenticator,
        pools=pools,
        lookups=CredentialLookups(authenticator, pools.lookups),
        valkey=valkey,
        broker=Broker.of(settings.broker),
        rate_limiter=RateLimiter(valkey),
        # Uploads and small bodies use different pools: uploads over slow links must not keep out other
        # requests.
        receptions=_receptions(settings, pools.uploads),
        small_bodies=_receptions(settings, pools.small_bodies),
        models=build_model_services(settings, database),
        agents=build_agent_services(settings, database, pools.streams),
    )


def _receptions(settings: Settings, pool: Pool) -> BodyReceiver:
    return BodyReceiver(
        pool,
        grace_seconds=settings.upload_grace_seconds,
        minimum_bytes_per_second=settings.upload_minimum_bytes_per_second,
    )
