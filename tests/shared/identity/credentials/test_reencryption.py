"""An encryption key can be removed after all of its secrets were reencrypted with the next one."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.fernet import Fernet, InvalidToken
from pydantic import SecretStr
from sqlalchemy import LargeBinary, select, text

from deploy.cli.commands.encryption import all_tables
from shared.config.settings import Settings
from shared.db.database import Database
from shared.deliveries.outbox import enqueue_delivery
from shared.deliveries.sealed_addresses import seal_address
from shared.encryption import Encryption
from shared.identity.access.authorization import OPERATOR
from shared.identity.credentials import reencryption
from shared.identity.credentials.reencryption import reencrypt, secret_columns
from shared.identity.credentials.webhook_secrets import list_webhook_secrets
from shared.media.network_settings import get_credentials
from shared.media.network_setup.network_administration import put_network_settings
from shared.media.networks.registry import NETWORKS
from shared.media.notifications.notification_endpoints import get_endpoint, set_endpoint
from tests.shared.identity.conftest import make_world
from tests.support.data.identity import IdentityFactory, make_settings

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()
NO_SECRETS = {"hash", "sha256", "checksums", "body"}
"""How the names of binary columns end that hold nothing encrypted."""


def with_keys(*keys: str) -> Settings:
    return make_settings(encryption_keys=tuple(SecretStr(key) for key in keys))


@pytest.fixture
def distribution_ids(database: Database, monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Return distributions with all their secrets; a batch has fewer rows than there are distributions."""
    monkeypatch.setattr(reencryption, "BATCH_SIZE", 2)
    settings = with_keys(OLD)
    factory = IdentityFactory(database, settings)
    ids = [make_world(factory).distribution.distribution.id for _ in range(3)]
    with database.transaction() as session:
        session.execute(text("UPDATE distributions SET networks = ARRAY['slack']"))
        for id_ in ids:
            for secret in ("first", "second"):
                values = {"signingSecret": secret * 5, "botToken": "xoxb-" + secret * 3}
                put_network_settings(
                    session,
                    settings,
                    actor=OPERATOR,
                    distribution_id=id_,
                    network=NETWORKS["slack"],
                    values=values,
                )
            set_endpoint(session, settings, actor=OPERATOR, distribution_id=id_, url="https://bot.example/")
            enqueue_delivery(
                session,
                kind="test",
                event="x",
                destination_id=id_,
                organization_id=uuid4(),
                body=b"",
                sealed_address=seal_address(Encryption(settings), url="https://bot.example/", headers={}),
            )
    return ids


def secrets_of(database: Database, settings: Settings, distribution_id: UUID) -> tuple[Any, ...]:
    encryption = Encryption(settings)
    with database.transaction() as session:
        return (
            list_webhook_secrets(session, encryption, distribution_id),
            get_credentials(session, encryption, distribution_id, "slack"),
            get_endpoint(session, settings, actor=OPERATOR, distribution_id=distribution_id),
        )


def kept(database: Database) -> list[bytes]:
    """Return every encrypted secret as it is stored."""
    columns = [column for table in all_tables() for column in secret_columns(table)]
    with database.transaction() as session:
        found = [session.execute(select(column)).scalars().all() for column in columns]
    return [bytes(token) for tokens in found for token in tokens if token is not None]


def test_secrets_of_the_old_key_are_readable_with_only_the_new_key(
    database: Database, distribution_ids: list[UUID]
) -> None:
    before = [secrets_of(database, with_keys(OLD), id_) for id_ in distribution_ids]
    tokens = kept(database)
    done = reencrypt(database, with_keys(NEW, OLD), all_tables())
    assert (done.renewed, done.unreadable) == (len(tokens), ())
    assert [secrets_of(database, with_keys(NEW), id_) for id_ in distribution_ids] == before
    for token in kept(database):
        Encryption(with_keys(NEW)).decrypt(token)
        with pytest.raises(InvalidToken):
            Encryption(with_keys(OLD)).decrypt(token)
    assert reencrypt(database, with_keys(NEW, OLD), all_tables()).renewed == 0


def test_secret_that_no_key_decrypts_is_reported_and_kept(
    database: Database, distribution_ids: list[UUID]
) -> None:
    reencrypt(database, with_keys(OLD, NEW), all_tables())
    tokens = kept(database)
    done = reencrypt(database, with_keys(NEW), all_tables())
    assert (done.renewed, len(done.unreadable)) == (0, len(tokens))
    assert f"notification_endpoints.url_encrypted: {distribution_ids[0]}" in done.unreadable
    assert kept(database) == tokens


def test_columns_of_bytes_say_by_their_names_whether_they_hold_secrets() -> None:
    binary = [
        column for table in all_tables() for column in table.columns if isinstance(column.type, LargeBinary)
    ]
    secret = {column.key for table in all_tables() for column in secret_columns(table)}
    others = {column.name for column in binary} - secret
    assert {name for name in others if name.rpartition("_")[2] not in NO_SECRETS} == set()
