"""The caches of the authenticator: their contents, their times to live, and their bounds."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, func, select, update

from shared.config.settings import Settings
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.identity.authentication.authenticator import Authenticator
from shared.identity.authentication.last_use import LastUse
from shared.identity.credentials.api_keys import revoke_api_key
from shared.identity.directory.deployments import disable_deployment
from shared.identity.directory.distributions import rotate_distribution_token
from shared.identity.directory.identities import disable_identity
from shared.identity.errors import AttributionMismatch, InvalidToken
from shared.identity.expiring_cache import ExpiringCache
from shared.identity.tables import api_keys
from shared.identity.tokens.signing_keys import SigningKeys
from tests.shared.identity.conftest import World
from tests.support.data.identity import IdentityFactory
from tests.support.data.monotonic_clock import MonotonicClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MonotonicClock:
    clock = MonotonicClock()
    monkeypatch.setattr("time.monotonic", clock.monotonic)
    return clock


@pytest.fixture
def caching(database: Database, settings: Settings, clock: MonotonicClock) -> Authenticator:
    return remembering_for(2.0, database, settings)


def remembering_for(seconds: float, database: Database, settings: Settings) -> Authenticator:
    remembering = settings.model_copy(update={"live_row_cache_seconds": seconds})
    return Authenticator(database, remembering, SigningKeys(database, remembering))


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """Yield a list that collects the statements executed meanwhile."""
    seen: list[str] = []

    asking = threading.get_ident()

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if threading.get_ident() == asking:  # others keep their own hours, such as what notes last uses
            seen.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    yield seen
    event.remove(database.engine, "before_cursor_execute", note)


def test_a_known_call_asks_the_database_nothing(
    factory: IdentityFactory, database: Database, world: World, caching: Authenticator
) -> None:
    authorization, attribution = (
        factory.authorization(world.deployment),
        factory.attribution(world.distribution),
    )
    first = caching.resolve(caching.authenticate(authorization), attribution)
    with statements(database) as seen:
        assert caching.resolve(caching.authenticate(authorization), attribution) is first
        caching.resolve(caching.authenticate(authorization), None)
    assert seen == []


def test_cached_attribution_does_not_serve_another_credential(
    factory: IdentityFactory, world: World, caching: Authenticator
) -> None:
    attribution = factory.attribution(world.distribution)
    own = caching.authenticate(factory.authorization(world.deployment))
    remembered = caching.resolve(own, attribution)
    neighbour = factory.deployment(world.organization_id)
    stranger = factory.deployment(factory.organization().id)
    person = factory.person(world.organization_id)
    for authorization in (
        factory.authorization(neighbour),
        factory.authorization(stranger),
        person.authorization,
    ):
        other = caching.authenticate(authorization)
        with pytest.raises(AttributionMismatch):
            caching.resolve(other, attribution)
        assert caching.resolve(own, attribution) is not None
    second_token = caching.authenticate(factory.authorization(world.deployment))
    again = caching.resolve(second_token, attribution)
    assert (again.owner, again.payer_id) == (remembered.owner, remembered.payer_id)


def test_a_new_token_costs_one_statement_and_a_new_attribution_another(
    factory: IdentityFactory, database: Database, world: World, caching: Authenticator
) -> None:
    caching.authenticate(factory.authorization(world.deployment))
    authorization, attribution = (
        factory.authorization(world.deployment),
        factory.attribution(world.distribution),
    )
    with statements(database) as seen:
        credential = caching.authenticate(authorization)
    assert len(seen) == 1
    with statements(database) as seen:
        caching.resolve(credential, None)
    assert seen == []
    with statements(database) as seen:
        caching.resolve(credential, attribution)
    assert len(seen) == 1


def test_a_new_api_key_costs_one_statement(
    factory: IdentityFactory, database: Database, world: World, caching: Authenticator
) -> None:
    person = factory.person(world.organization_id)
    record_use(database, person.user_id)
    with statements(database) as seen:
        caching.resolve(caching.authenticate(person.authorization), None)
    assert len(seen) == 1


def test_disabled_rows_are_refused_after_the_cache_expires(
    factory: IdentityFactory, database: Database, world: World, caching: Authenticator, clock: MonotonicClock
) -> None:
    person = factory.person(world.organization_id)
    bearers = [factory.authorization(world.deployment), person.authorization]
    attribution = factory.attribution(world.distribution)
    caching.resolve(caching.authenticate(bearers[0]), attribution)
    caching.authenticate(bearers[1])
    with database.transaction() as session:
        disable_deployment(session, actor=OPERATOR, deployment_id=world.deployment.deployment.id)
        disable_identity(session, actor=OPERATOR, identity_id=world.principal_id)
        key_id = session.execute(
            select(api_keys.c.id).where(api_keys.c.user_id == person.user_id)
        ).scalar_one()
        revoke_api_key(session, actor=OPERATOR, key_id=key_id)
    clock.move(1.9)
    caching.resolve(caching.authenticate(bearers[0]), attribution)
    clock.move(0.2)
    for bearer in bearers:
        with pytest.raises(InvalidToken):
            caching.authenticate(bearer)


def test_a_token_is_not_remembered_beyond_its_expiry(
    factory: IdentityFactory, world: World, clock: MonotonicClock
) -> None:
    caching = remembering_for(10.0, factory.database, factory.settings)
    # Whole seconds count: it has three to four of them. The clock of the database is read again after five.
    short = factory.settings.model_copy(update={"access_token_seconds": 4})
    token = IdentityFactory(factory.database, short).access_token(world.deployment)
    assert caching.authenticate(f"Bearer {token}").caller is not None
    clock.move(4.5)
    with pytest.raises(InvalidToken):
        caching.authenticate(f"Bearer {token}")


def test_the_cache_is_bounded_and_drops_the_oldest(clock: MonotonicClock) -> None:
    cache = ExpiringCache[int](3)
    for number in range(10):
        cache.put(bytes([number]), number, ttl_seconds=5)
    assert len(cache) == 3
    assert [cache.find(bytes([number])) for number in range(10)] == [None] * 7 + [7, 8, 9]


def test_cache_entries_expire_and_zero_ttl_stores_nothing(clock: MonotonicClock) -> None:
    cache = ExpiringCache[int](3)
    cache.put(b"a", 1, ttl_seconds=5)
    cache.put(b"b", 2, ttl_seconds=0)
    assert (cache.find(b"a"), cache.find(b"b")) == (1, None)
    clock.move(5)
    assert cache.find(b"a") is None


def test_a_replaced_distribution_token_stays_good_for_its_overlap(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    authenticator = factory.authenticator()
    distribution_id = world.distribution.distribution.id
    old = f"Bearer {world.distribution.token.value}"
    with database.transaction() as session:
        new = rotate_distribution_token(session, actor=OPERATOR, distribution_id=distribution_id)
    assert authenticator.authenticate(old).id == distribution_id
    assert authenticator.authenticate(f"Bearer {new.value}").id == distribution_id
    with database.transaction() as session:
        newest = rotate_distribution_token(
            session, actor=OPERATOR, distribution_id=distribution_id, overlap_seconds=0
        )
    for gone in (old, f"Bearer {new.value}"):
        with pytest.raises(InvalidToken):
            authenticator.authenticate(gone)
    assert authenticator.authenticate(f"Bearer {newest.value}").id == distribution_id


def test_the_last_use_is_written_at_most_once_a_minute(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    user_id = factory.person(world.organization_id).user_id
    first = record_use(database, user_id)
    assert first is not None
    assert record_use(database, user_id) == first
    with database.transaction() as session:
        earlier = func.now() - timedelta(seconds=61)
        session.execute(update(api_keys).where(api_keys.c.user_id == user_id).values(last_used_at=earlier))
    second = record_use(database, user_id)
    assert second is not None
    assert second > first


def test_failed_write_of_a_last_use_fails_no_request(world: World) -> None:
    nowhere = Database("postgresql+psycopg2://nobody@/nothing?host=/nonexistent")
    last_use = LastUse(nowhere)
    last_use.record(api_keys, world.principal_id)
    last_use.flush()
    nowhere.dispose()


def record_use(database: Database, user_id: Any) -> Any:
    """Record a use of the user's key as the authenticator does, flush it, and return the stored time."""
    with database.transaction() as session:
        key_id = session.execute(select(api_keys.c.id).where(api_keys.c.user_id == user_id)).scalar_one()
    last_use = LastUse(database)
    last_use.record(api_keys, key_id)
    last_use.flush()
    with database.transaction() as session:
        return session.execute(select(api_keys.c.last_used_at).where(api_keys.c.id == key_id)).scalar()
