"""The token endpoint: exchange of secrets, scopes and expiry of tokens, revocation and introspection."""

import base64
import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import func, select, update

from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.identity.credentials.client_credentials import (
    issue_client_credential,
    list_client_credentials,
    revoke_client_credential,
)
from shared.identity.directory.deployments import CreatedDeployment, disable_deployment, enable_deployment
from shared.identity.directory.identities import disable_identity
from shared.identity.directory.organizations import suspend_organization
from shared.identity.directory.versions import activate_version, deploy_version, list_versions, revoke_version
from shared.identity.errors import (
    InvalidClient,
    InvalidScope,
    InvalidToken,
    TooManyLive,
    UnauthorizedClient,
    VersionRevoked,
)
from shared.identity.secrets import Prefix, issue
from shared.identity.sweeps import sweep_revoked_tokens
from shared.identity.tables import client_credentials, revoked_tokens
from shared.identity.token_endpoint.oauth_metadata import (
    authorization_server_metadata,
    protected_resource_metadata,
)
from shared.identity.token_endpoint.token_exchange import exchange, introspect, revoke
from shared.identity.tokens.access_tokens import revoke_token, verify_access_token
from tests.shared.identity.conftest import World, make_world
from tests.support.data.identity import IdentityFactory


def client(deployment: CreatedDeployment) -> dict[str, str]:
    return {
        "client_id": str(deployment.deployment.client_id),
        "client_secret": deployment.credential.secret.value,
    }


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return claims


def test_a_token_is_an_rfc_9068_token_of_fifteen_minutes(factory: IdentityFactory, world: World) -> None:
    deployment = world.deployment.deployment
    token = exchange(factory.database, factory.settings, factory.keys, **client(world.deployment))
    claims = claims_of(token.value)
    assert token.expires_in_seconds == claims["exp"] - claims["iat"] == 900
    assert claims["iss"] == claims["aud"] == "https://qm.example"
    assert claims["sub"] == claims["client_id"] == str(deployment.client_id)
    assert claims["deployment_id"] == str(deployment.id)
    assert claims["version_id"] == str(world.deployment.version.id)
    assert claims["organization_id"] == str(world.organization_id)
    assert claims["daemon_id"] == str(world.daemon_id)
    assert claims["scope"] == token.scope == "FileCreate FileRead FileUpdate TaskRead model.execute"
    assert claims["jti"]


def test_the_scope_only_narrows(factory: IdentityFactory, world: World) -> None:
    token = exchange(
        factory.database, factory.settings, factory.keys, **client(world.deployment), scope="FileRead"
    )
    assert token.scope == "FileRead"


@pytest.mark.parametrize(
    "scope",
    ["FileDelete", "FileRead FileDelete", "member.manage", "fileread", "", " ", "FileRead  ", "x" * 2000],
)
def test_a_scope_beyond_the_daemons_roles_is_refused(
    factory: IdentityFactory, world: World, scope: str
) -> None:
    with pytest.raises(InvalidScope):
        exchange(factory.database, factory.settings, factory.keys, **client(world.deployment), scope=scope)


def test_wrong_credentials_are_one_error(factory: IdentityFactory, world: World) -> None:
    right = client(world.deployment)
    other = client(make_world(factory).deployment)
    wrong = [
        {**right, "client_secret": issue(Prefix.CLIENT_SECRET).value},
        {**right, "client_secret": right["client_secret"][:-1] + "!"},
        {**right, "client_secret": ""},
        {**right, "client_secret": other["client_secret"]},
        {**right, "client_id": other["client_id"]},
        {**right, "client_id": right["client_id"].upper()},
        {**right, "client_id": ""},
        {**right, "client_id": str(uuid4())},
    ]
    for attempt in wrong:
        with pytest.raises(InvalidClient):
            exchange(factory.database, factory.settings, factory.keys, **attempt)


def test_a_disabled_deployment_and_a_disabled_daemon_get_no_token(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    deployment_id = world.deployment.deployment.id
    authorization = factory.authorization(world.deployment)
    with database.transaction() as session:
        disable_deployment(session, actor=OPERATOR, deployment_id=deployment_id)
    with pytest.raises(InvalidClient):
        factory.access_token(world.deployment)
    with pytest.raises(InvalidToken):
        factory.authenticator().authenticate(authorization)
    with database.transaction() as session:
        enable_deployment(session, actor=OPERATOR, deployment_id=deployment_id)
    assert factory.authenticator().authenticate(authorization).caller is not None
    with database.transaction() as session:
        disable_identity(session, actor=OPERATOR, identity_id=world.daemon_id)
    with pytest.raises(InvalidClient):
        factory.access_token(world.deployment)


def test_a_suspended_organization_gets_no_token(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    with database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=world.organization_id)
    with pytest.raises(UnauthorizedClient):
        factory.access_token(world.deployment)


def test_secrets_rotate_without_a_failed_call_and_tokens_die_with_their_secret(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    deployment = world.deployment.deployment
    first = factory.authorization(world.deployment)
    with database.transaction() as session:
        issued = issue_client_credential(session, actor=OPERATOR, deployment_id=deployment.id)
        with pytest.raises(TooManyLive):
            issue_client_credential(session, actor=OPERATOR, deployment_id=deployment.id)
    second = exchange(
        database,
        factory.settings,
        factory.keys,
        client_id=str(deployment.client_id),
        client_secret=issued.secret.value,
    )
    authenticator = factory.authenticator()
    assert authenticator.authenticate(first).caller is not None
    with database.transaction() as session:
        old = world.deployment.credential.credential.id
        revoked = revoke_client_credential(session, actor=OPERATOR, credential_id=old)
        assert revoke_client_credential(session, actor=OPERATOR, credential_id=old) == revoked
    with pytest.raises(InvalidToken):
        authenticator.authenticate(first)
    with pytest.raises(InvalidClient):
        factory.access_token(world.deployment)
    assert authenticator.authenticate(f"Bearer {second.value}").caller is not None


def test_an_expired_secret_and_its_tokens_are_worthless(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    authorization = factory.authorization(world.deployment)
    with database.transaction() as session:
        session.execute(
            update(client_credentials)
            .where(client_credentials.c.deployment_id == world.deployment.deployment.id)
            .values(expires_at=func.now() - timedelta(seconds=1))
        )
    with pytest.raises(InvalidClient):
        factory.access_token(world.deployment)
    with pytest.raises(InvalidToken):
        factory.authenticator().authenticate(authorization)


def test_listing_secrets_shows_four_characters_and_the_last_use(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    factory.access_token(world.deployment)
    with database.transaction() as session:
        page = list_client_credentials(session, actor=OPERATOR, deployment_id=world.deployment.deployment.id)
    (listed,) = page.items
    assert listed.last4 == world.deployment.credential.secret.value[-4:]
    assert listed.client_id == world.deployment.deployment.client_id
    assert listed.last_used_at is not None


def test_tokens_name_the_active_version_and_a_revoked_one_ends_its_own(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    deployment_id = world.deployment.deployment.id
    of_first = factory.authorization(world.deployment)
    with database.transaction() as session:
        second = deploy_version(session, actor=OPERATOR, deployment_id=deployment_id, label="abc123")
    of_second = factory.access_token(world.deployment)
    assert second.number == 2
    assert claims_of(of_second)["version_id"] == str(second.id)
    authenticator = factory.authenticator()
    assert authenticator.authenticate(of_first).caller is not None
    with database.transaction() as session:
        revoke_version(session, actor=OPERATOR, version_id=second.id)
    with pytest.raises(InvalidToken):
        authenticator.authenticate(f"Bearer {of_second}")
    assert authenticator.authenticate(of_first).caller is not None
    with pytest.raises(UnauthorizedClient):
        factory.access_token(world.deployment)
    with database.transaction() as session:
        with pytest.raises(VersionRevoked):
            activate_version(session, actor=OPERATOR, version_id=second.id)
        first = list_versions(session, actor=OPERATOR, deployment_id=deployment_id).items[0]
        activate_version(session, actor=OPERATOR, version_id=first.id)
    assert claims_of(factory.access_token(world.deployment))["version_id"] == str(first.id)


def test_a_client_revokes_its_own_token_at_once(factory: IdentityFactory, world: World) -> None:
    token = factory.access_token(world.deployment)
    authenticator = factory.authenticator()
    assert authenticator.authenticate(f"Bearer {token}").caller is not None
    revoke(factory.database, factory.settings, factory.keys, **client(world.deployment), token=token)
    revoke(factory.database, factory.settings, factory.keys, **client(world.deployment), token=token)
    with pytest.raises(InvalidToken):
        authenticator.authenticate(f"Bearer {token}")


def test_revoking_what_is_not_ones_own_changes_nothing(factory: IdentityFactory, world: World) -> None:
    token = factory.access_token(world.deployment)
    stranger = client(make_world(factory).deployment)
    for attempt in (token, "nonsense", "a.b.c", ""):
        revoke(factory.database, factory.settings, factory.keys, **stranger, token=attempt)
    assert factory.authenticator().authenticate(f"Bearer {token}").caller is not None


def test_revoking_needs_the_clients_secret(factory: IdentityFactory, world: World) -> None:
    token = factory.access_token(world.deployment)
    attempt = {**client(world.deployment), "client_secret": issue(Prefix.CLIENT_SECRET).value}
    with pytest.raises(InvalidClient):
        revoke(factory.database, factory.settings, factory.keys, **attempt, token=token)


def test_introspection_describes_a_live_token_of_ones_own_and_nothing_else(
    factory: IdentityFactory, world: World
) -> None:
    me, stranger = client(world.deployment), client(make_world(factory).deployment)
    token = factory.access_token(world.deployment)
    claims = claims_of(token)
    described = introspect(factory.database, factory.settings, factory.keys, **me, token=token)
    assert described["active"] is True
    for name in ("scope", "client_id", "sub", "iss", "aud", "iat", "exp", "jti", "deployment_id"):
        assert described[name] == claims[name]
    inactive = {"active": False}
    assert introspect(factory.database, factory.settings, factory.keys, **stranger, token=token) == inactive
    assert introspect(factory.database, factory.settings, factory.keys, **me, token="junk") == inactive
    revoke(factory.database, factory.settings, factory.keys, **me, token=token)
    assert introspect(factory.database, factory.settings, factory.keys, **me, token=token) == inactive


def test_token_revocation_is_kept_until_the_slowest_upload_is_over(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    claims = verify_access_token(factory.keys, factory.settings, factory.access_token(world.deployment))
    with database.transaction() as session:
        revoke_token(session, claims)
    expiry = update(revoked_tokens).where(revoked_tokens.c.jti == claims.token_id)
    kept = select(revoked_tokens.c.jti).where(revoked_tokens.c.jti == claims.token_id)
    with database.transaction() as session:
        session.execute(expiry.values(expires_at=func.now() - timedelta(days=1)))
    sweep_revoked_tokens(database, factory.settings)
    with database.transaction() as session:
        assert session.execute(kept).scalar() == claims.token_id
        session.execute(expiry.values(expires_at=func.now() - timedelta(days=2)))
    assert sweep_revoked_tokens(database, factory.settings) > 0
    with database.transaction() as session:
        assert session.execute(kept).scalar() is None


def test_the_server_describes_itself() -> None:
    base_url = "https://qm.example"
    metadata = authorization_server_metadata(base_url)
    assert metadata["issuer"] == base_url
    assert metadata["token_endpoint"] == f"{base_url}/oauth/token"
    assert metadata["grant_types_supported"][0] == "client_credentials"
    assert metadata["response_types_supported"] == []
    assert protected_resource_metadata(base_url)["authorization_servers"] == [base_url]
