"""Request tokens: verified by the published keys alone, for one deployment, for five minutes."""

from typing import Any
from uuid import uuid4

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from shared.a2a.remote.request_tokens import TYPE, mint_request_token
from shared.db.database import Database
from shared.errors import DomainError
from shared.identity.tokens.key_rotation import KeyPurpose, lifetime_seconds
from tests.support.data.identity import IdentityFactory, make_settings


def test_a_request_token_is_verified_by_the_published_keys(database: Database) -> None:
    settings = make_settings()
    factory = IdentityFactory(database, settings)
    deployment_id = uuid4()
    tokens = [mint_request_token(factory.keys, settings, deployment_id) for _ in range(2)]
    published: Any = factory.keys.jwks()
    read = [jwt.decode(token, KeySet.import_key_set(published), ["ES256"]) for token in tokens]
    header, claims = read[0].header, read[0].claims
    assert (header["alg"], header["typ"]) == ("ES256", TYPE)
    assert claims["exp"] - claims["iat"] == 300
    assert (claims["iss"], claims["aud"], claims["sub"]) == (
        settings.base_url,
        str(deployment_id),
        "quartermaster",
    )
    assert claims["jti"] != read[1].claims["jti"]


def test_a_request_token_opens_nothing_of_ours(database: Database) -> None:
    settings = make_settings()
    factory = IdentityFactory(database, settings)
    deployment = factory.deployment(factory.organization().id)
    token = mint_request_token(factory.keys, settings, deployment.deployment.id)
    authenticator = factory.authenticator()
    with pytest.raises(DomainError):
        authenticator.authenticate(f"Bearer {token}")
    credential = authenticator.authenticate(factory.authorization(deployment))
    with pytest.raises(DomainError):
        authenticator.resolve(credential, token)


def test_a_key_verifies_as_long_as_the_last_request_token_lives() -> None:
    settings = make_settings(attribution_seconds=10)
    assert lifetime_seconds(settings, KeyPurpose.ATTRIBUTION) >= 300
