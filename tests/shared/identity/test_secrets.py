"""The format of secrets, and that none is stored, shown again or logged in clear."""

import base64
import re

import pytest
from sqlalchemy import select

from shared.db.database import Database
from shared.db.schema import metadata
from shared.encryption import Encryption
from shared.identity.access.authorization import OPERATOR
from shared.identity.credentials.client_credentials import issue_client_credential
from shared.identity.directory.distributions import rotate_distribution_token, rotate_webhook_secret
from shared.identity.secrets import Prefix, Secret, hash_secret, is_well_formed, issue, issue_webhook_secret
from shared.identity.tables import distributions
from shared.observability.telemetry import redact
from tests.shared.identity.conftest import World
from tests.support.data.identity import IdentityFactory


@pytest.mark.parametrize("prefix", Prefix)
def test_a_secret_is_its_prefix_256_bits_and_a_checksum(prefix: Prefix) -> None:
    secret = issue(prefix)
    assert re.fullmatch(prefix + "[0-9A-Za-z]{49}", secret.value)
    assert is_well_formed(secret.value, prefix)
    assert secret.hash == hash_secret(secret.value)
    assert len(secret.hash) == 32
    assert secret.value.endswith(secret.last4)


def test_secrets_are_unique() -> None:
    assert len({issue(Prefix.API_KEY).value for _ in range(1000)}) == 1000


def test_every_single_altered_character_is_noticed_without_a_query() -> None:
    value = issue(Prefix.API_KEY).value
    for position in range(len(value)):
        for other in "0aZ-":
            if value[position] != other:
                assert not is_well_formed(value[:position] + other + value[position + 1 :], Prefix.API_KEY)


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value[:-1],
        lambda value: value + "0",
        lambda value: value + "\n",
        lambda value: " " + value,
        lambda value: value.upper(),
        lambda value: value.replace("svk_", "svs_"),
        lambda value: value[:20] + "é" + value[21:],
        lambda value: value[:20] + "٣" + value[21:],
        lambda _: "",
    ],
)
def test_anything_else_is_not_well_formed(change: object) -> None:
    assert callable(change)
    assert not is_well_formed(change(issue(Prefix.API_KEY).value), Prefix.API_KEY)


def test_one_kind_of_secret_does_not_pass_for_another() -> None:
    for prefix in Prefix:
        fitting = [other for other in Prefix if is_well_formed(issue(prefix).value, other)]
        assert fitting == [prefix]


def test_a_webhook_secret_is_what_standard_webhooks_expects() -> None:
    secret = issue_webhook_secret()
    assert secret.value.startswith("whsec_")
    assert len(base64.b64decode(secret.value.removeprefix("whsec_"), validate=True)) == 32


def test_secrets_hide_in_representations_and_logs() -> None:
    for secret in (issue(Prefix.API_KEY), issue(Prefix.DISTRIBUTION_TOKEN), issue_webhook_secret()):
        assert secret.value not in repr(secret)
        assert secret.value not in redact(f"value={secret.value}")


def test_no_secret_is_stored_in_clear_in_any_column(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    issued = [world.deployment.credential.secret, world.distribution.token, world.distribution.webhook_secret]
    with database.transaction() as session:
        deployment_id = world.deployment.deployment.id
        distribution_id = world.distribution.distribution.id
        second = issue_client_credential(session, actor=OPERATOR, deployment_id=deployment_id)
        issued.append(second.secret)
        issued.append(rotate_distribution_token(session, actor=OPERATOR, distribution_id=distribution_id))
        issued.append(
            rotate_webhook_secret(session, factory.settings, actor=OPERATOR, distribution_id=distribution_id)
        )
    values = [secret.value for secret in issued]
    values.append(factory.person(world.organization_id).api_key)
    values.append(factory.access_token(world.deployment))
    values.append(factory.attribution(world.distribution))
    stored = _everything(database)
    for value in values:
        for needle in (value, value.removeprefix("whsec_"), value[4:24]):
            assert needle.encode() not in stored


def test_a_replaced_webhook_secret_is_kept_for_its_overlap(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    distribution_id = world.distribution.distribution.id
    with database.transaction() as session:
        new = rotate_webhook_secret(
            session, factory.settings, actor=OPERATOR, distribution_id=distribution_id
        )
        row = session.execute(select(distributions).where(distributions.c.id == distribution_id)).one()
    encryption = Encryption(factory.settings)
    previous: Secret = world.distribution.webhook_secret
    assert encryption.decrypt(bytes(row.webhook_secret_encrypted)) == new.value
    assert encryption.decrypt(bytes(row.previous_webhook_secret_encrypted)) == previous.value
    assert row.previous_webhook_secret_expires_at is not None


def _everything(database: Database) -> bytes:
    """Return all text and bytes in the database."""
    cells: list[bytes] = []
    with database.transaction() as session:
        for table in metadata.sorted_tables:
            if not table.name.startswith("alembic"):
                for row in session.execute(select(table)):
                    cells += [bytes(c) if isinstance(c, memoryview | bytes) else str(c).encode() for c in row]
    return b"\0".join(cells)
