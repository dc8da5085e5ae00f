"""The first run creates everything that a first call needs, once, also if many processes start."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from deploy.embedded.postgres import EmbeddedPostgres
from shared.config.settings import Settings
from shared.db.database import Database
from shared.identity.access.permissions import OPERATOR_PERMISSIONS, Permission
from shared.identity.authentication.authenticator import Authenticator
from shared.identity.bootstrap import Credentials, bootstrap
from shared.identity.token_endpoint.attribution_minting import mint_attribution
from shared.identity.token_endpoint.token_exchange import exchange
from shared.identity.tokens.signing_keys import SigningKeys


@pytest.fixture
def empty(postgres_server: EmbeddedPostgres, migrated_template: str) -> Iterator[Database]:
    """Return a database without any rows."""
    postgres_server.drop_database("never_set_up")
    url = postgres_server.create_database("never_set_up", template=migrated_template)
    database = Database(url.replace("postgresql://", "postgresql+psycopg2://", 1))
    yield database
    database.dispose()


def test_the_first_runs_credentials_work(empty: Database, settings: Settings) -> None:
    credentials = bootstrap(empty, settings)
    assert credentials is not None
    keys = SigningKeys(empty, settings)
    authenticator = Authenticator(empty, settings, keys)
    owner = authenticator.resolve(authenticator.authenticate(f"Bearer {credentials.owner_api_key}"), None)
    assert owner.is_operator
    assert owner.organization_id == credentials.organization_id
    assert (
        owner.permissions_on(organization_id=credentials.organization_id)
        == frozenset(Permission) - OPERATOR_PERMISSIONS
    )
    token = exchange(
        empty,
        settings,
        keys,
        client_id=str(credentials.client_id),
        client_secret=credentials.client_secret,
    )
    distribution = authenticator.authenticate(f"Bearer {credentials.distribution_token}")
    minted = mint_attribution(keys, settings, distribution)
    caller = authenticator.resolve(authenticator.authenticate(f"Bearer {token.value}"), minted.value)
    assert caller.executor.id == credentials.daemon_identity_id
    assert caller.owner is not None
    assert caller.owner.id == credentials.principal_identity_id
    assert caller.payer_id == credentials.organization_id


def test_second_bootstrap_does_nothing(empty: Database, settings: Settings) -> None:
    assert bootstrap(empty, settings) is not None
    assert bootstrap(empty, settings) is None


def test_many_first_runs_at_once_set_up_once(empty: Database, settings: Settings) -> None:
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda _: bootstrap(empty, settings), range(6)))
    assert len([credentials for credentials in made if credentials is not None]) == 1


def test_the_credentials_document_is_complete_and_their_representation_keeps_secrets(
    empty: Database, settings: Settings
) -> None:
    credentials = bootstrap(empty, settings)
    assert isinstance(credentials, Credentials)
    document = credentials.document()
    assert document.keys() == {"baseUrl", "organizationId", "ownerApiKey", "deployment", "distribution"}
    assert document["deployment"].keys() == {"id", "clientId", "clientSecret", "daemonIdentityId"}
    assert document["distribution"].keys() == {"id", "token", "webhookSecret", "principalIdentityId"}
    secrets = (
        credentials.owner_api_key,
        credentials.client_secret,
        credentials.distribution_token,
        credentials.webhook_secret,
    )
    for secret in secrets:
        assert secret not in repr(credentials)
