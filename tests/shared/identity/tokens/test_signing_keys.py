"""Signing keys: published before they sign, verifying until their last token has expired, deleted by revocation."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from shared.config.settings import Settings
from shared.db.database import Database
from shared.encryption import Encryption
from shared.errors import PermissionDenied
from shared.identity.access.authorization import OPERATOR
from shared.identity.errors import InvalidToken, KeyNotPublished, ResourceNotFound
from shared.identity.tables import signing_keys
from shared.identity.tokens import access_tokens, usage_attribution
from shared.identity.tokens.key_rotation import (
    PUBLICATION_SECONDS,
    KeyPurpose,
    KeyState,
    ensure_keys,
    lifetime_seconds,
    revoke_key,
    rotate_due_keys,
    rotate_keys,
)
from shared.identity.tokens.signing_keys import SigningKeys
from tests.shared.identity.conftest import World
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.processes.collected_cases import found


@pytest.fixture(autouse=True)
def _fresh_keys(database: Database, settings: Settings) -> None:
    with database.transaction() as session:
        session.execute(delete(signing_keys))
    ensure_keys(database, settings)


def age(database: Database, column: str, seconds: float) -> None:
    """Move a time of every key into the past."""
    with database.transaction() as session:
        earlier = signing_keys.c[column] - timedelta(seconds=seconds)
        session.execute(update(signing_keys).values({column: earlier}))


def states(database: Database, purpose: KeyPurpose = KeyPurpose.ACCESS) -> dict[str, str]:
    """Return the states of the keys by key id."""
    with database.transaction() as session:
        rows = session.execute(select(signing_keys).where(signing_keys.c.purpose == purpose))
        return {row.kid: row.state for row in rows}


def current(database: Database, purpose: KeyPurpose = KeyPurpose.ACCESS) -> str:
    return next(kid for kid, state in states(database, purpose).items() if state == KeyState.CURRENT)


def test_each_purpose_has_a_current_and_a_next_key_of_its_own(database: Database) -> None:
    access, attribution = states(database, KeyPurpose.ACCESS), states(database, KeyPurpose.ATTRIBUTION)
    assert sorted(access.values()) == sorted(attribution.values()) == ["current", "next"]
    assert not access.keys() & attribution.keys()


def test_making_keys_at_once_in_many_processes_makes_them_once(
    database: Database, settings: Settings
) -> None:
    with database.transaction() as session:
        session.execute(delete(signing_keys))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: ensure_keys(database, settings), range(8)))
    assert sorted(states(database).values()) == ["current", "next"]


def test_the_first_use_makes_missing_keys(database: Database, settings: Settings) -> None:
    with database.transaction() as session:
        session.execute(delete(signing_keys))
    assert SigningKeys(database, settings).signing_key(KeyPurpose.ACCESS).kid == current(database)


def test_jwks_uses_thumbprints_and_contains_no_private_part(database: Database, settings: Settings) -> None:
    keys = SigningKeys(database, settings)
    published = keys.jwks()["keys"]
    stored = states(database, KeyPurpose.ACCESS) | states(database, KeyPurpose.ATTRIBUTION)
    assert {key["kid"] for key in published} == stored.keys()
    for key in published:
        assert key.keys() == {"kty", "crv", "x", "y", "kid", "use", "alg"}
        assert any(keys.find_verification_key(purpose, key["kid"]) for purpose in KeyPurpose)
    signer = keys.signing_key(KeyPurpose.ACCESS)
    assert signer.key.thumbprint() == signer.kid


def test_a_private_key_is_stored_encrypted_only(database: Database, settings: Settings) -> None:
    with database.transaction() as session:
        stored = session.execute(select(signing_keys.c.private_jwk_encrypted)).scalars()
        for encrypted in found(stored):
            assert b'"d"' not in bytes(encrypted)
            assert "d" in json.loads(Encryption(settings).decrypt(bytes(encrypted)))


def test_a_young_next_key_does_not_sign_yet(database: Database, settings: Settings) -> None:
    before = states(database)
    with pytest.raises(KeyNotPublished):
        rotate_keys(database, settings, actor=OPERATOR)
    assert states(database) == before


def test_tokens_in_flight_survive_a_rotation(
    factory: IdentityFactory, database: Database, settings: Settings, world: World
) -> None:
    authorization, attribution = (
        factory.authorization(world.deployment),
        factory.attribution(world.distribution),
    )
    signed_with = current(database)
    published = {key["kid"] for key in factory.keys.jwks()["keys"]}
    age(database, "created_at", PUBLICATION_SECONDS)
    rotate_keys(database, settings, actor=OPERATOR)
    assert current(database) != signed_with
    assert current(database) in published
    assert states(database)[signed_with] == KeyState.PREVIOUS
    authenticator = factory.authenticator()
    assert authenticator.resolve(authenticator.authenticate(authorization), attribution).owner is not None
    assert authenticator.authenticate(factory.authorization(world.deployment)).caller is not None


def test_a_process_that_has_not_noticed_a_rotation_still_signs_good_tokens(
    factory: IdentityFactory, database: Database, settings: Settings, world: World
) -> None:
    slow = IdentityFactory(database, settings.model_copy(update={"live_row_cache_seconds": 5}))
    slow.access_token(world.deployment)
    age(database, "created_at", PUBLICATION_SECONDS)
    rotate_keys(database, settings, actor=OPERATOR)
    late = slow.authorization(world.deployment)
    assert factory.authenticator().authenticate(late).caller is not None
    ahead = factory.authorization(world.deployment)
    assert slow.authenticator().authenticate(ahead).caller is not None


def test_a_previous_key_verifies_within_its_window_and_not_beyond(
    factory: IdentityFactory, database: Database, settings: Settings, world: World
) -> None:
    authorization = factory.authorization(world.deployment)
    age(database, "created_at", PUBLICATION_SECONDS)
    rotate_keys(database, settings, actor=OPERATOR)
    life = lifetime_seconds(settings, KeyPurpose.ACCESS)
    age(database, "retired_at", life - 30)
    assert factory.authenticator().authenticate(authorization).caller is not None
    age(database, "retired_at", 30)
    with pytest.raises(InvalidToken):
        factory.authenticator().authenticate(authorization)


def test_keys_are_rotated_when_due_and_spent_ones_dropped(database: Database, settings: Settings) -> None:
    assert rotate_due_keys(database, settings) == 0
    first = current(database)
    age(database, "created_at", PUBLICATION_SECONDS)
    age(database, "activated_at", settings.signing_key_days * 86_400)
    assert rotate_due_keys(database, settings) == len(KeyPurpose)
    assert rotate_due_keys(database, settings) == 0
    assert states(database)[first] == KeyState.PREVIOUS
    age(database, "retired_at", lifetime_seconds(settings, KeyPurpose.ATTRIBUTION))
    rotate_due_keys(database, settings)
    assert first not in states(database)


def test_two_processes_that_rotate_at_once_rotate_once(database: Database, settings: Settings) -> None:
    age(database, "created_at", PUBLICATION_SECONDS)
    age(database, "activated_at", settings.signing_key_days * 86_400)
    with ThreadPoolExecutor(4) as pool:
        rotated = list(pool.map(lambda _: rotate_due_keys(database, settings), range(4)))
    assert sum(rotated) == len(KeyPurpose)
    assert sorted(states(database).values()) == ["current", "next", "previous"]


@pytest.mark.parametrize("purpose", KeyPurpose)
def test_revoking_the_current_key_ends_its_tokens_and_another_signs(
    factory: IdentityFactory, database: Database, settings: Settings, world: World, purpose: KeyPurpose
) -> None:
    authenticator = factory.authenticator()
    authorization, attribution = (
        factory.authorization(world.deployment),
        factory.attribution(world.distribution),
    )
    authenticator.resolve(authenticator.authenticate(authorization), attribution)
    leaked = current(database, purpose)
    revoke_key(database, settings, actor=OPERATOR, kid=leaked)
    assert leaked not in states(database, purpose)
    with pytest.raises(Exception, match=r"forged|malformed"):
        authenticator.resolve(authenticator.authenticate(authorization), attribution)
    again = factory.attribution(world.distribution)
    credential = authenticator.authenticate(factory.authorization(world.deployment))
    assert authenticator.resolve(credential, again).transaction_id is not None
    assert sorted(states(database, purpose).values()) == ["current", "next"]


def test_revoking_a_key_that_is_not_there_says_so(database: Database, settings: Settings) -> None:
    with pytest.raises(ResourceNotFound):
        revoke_key(database, settings, actor=OPERATOR, kid="nobody")


def test_only_operators_rotate_and_revoke(
    factory: IdentityFactory, database: Database, settings: Settings, world: World
) -> None:
    owner = factory.actor(factory.person(world.organization_id))
    with pytest.raises(PermissionDenied):
        rotate_keys(database, settings, actor=owner)
    with pytest.raises(PermissionDenied):
        revoke_key(database, settings, actor=owner, kid=current(database))


def test_an_encryption_key_is_replaced_without_losing_signing_keys(database: Database) -> None:
    old = make_settings()
    new_key = "bmV3LWVuY3J5cHRpb24ta2V5LW9mLTMyLWJ5dGVzISE="
    both = make_settings(encryption_keys=(new_key, old.encryption_keys[0].get_secret_value()))
    encrypted = Encryption(old).encrypt("text")
    renewed = Encryption(both).renew(encrypted)
    assert Encryption(both).decrypt(encrypted) == "text"
    assert Encryption(make_settings(encryption_keys=(new_key,))).decrypt(renewed) == "text"


def test_tokens_are_judged_by_the_databases_clock(
    factory: IdentityFactory, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong_clock() -> float:
        return 0.0

    monkeypatch.setattr("time.time", wrong_clock)
    authenticator = factory.authenticator()
    authorization, attribution = (
        factory.authorization(world.deployment),
        factory.attribution(world.distribution),
    )
    assert authenticator.resolve(authenticator.authenticate(authorization), attribution).owner is not None


def test_token_types_are_the_registered_ones() -> None:
    types: tuple[Any, ...] = (access_tokens.TYPE, usage_attribution.TYPE)
    assert types == ("at+jwt", "usage-attribution+jwt")
