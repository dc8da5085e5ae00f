"""An encryption key is replaced while processes write and read secrets and are restarted one after the other."""

import threading
from collections.abc import Iterator
from itertools import count
from uuid import UUID

import pytest
from cryptography.fernet import Fernet, InvalidToken
from pydantic import SecretStr
from sqlalchemy import text

from deploy.cli.commands.encryption import all_tables
from shared.config.settings import Settings
from shared.db.database import Database
from shared.encryption import Encryption
from shared.identity.access.authorization import OPERATOR
from shared.identity.credentials import reencryption
from shared.identity.credentials.reencryption import reencrypt
from shared.media.network_settings import get_credentials
from shared.media.network_setup.network_administration import put_network_settings
from shared.media.networks.registry import NETWORKS
from tests.shared.identity.conftest import make_world
from tests.support.data.identity import IdentityFactory, make_settings

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()
STEPS = ((OLD,), (OLD, NEW), (NEW, OLD), (NEW,))
ROUNDS = 5
"""What each process writes and reads between two restarts, at the least."""


def with_keys(keys: tuple[str, ...]) -> Settings:
    return make_settings(encryption_keys=tuple(SecretStr(key) for key in keys))


class Process(threading.Thread):
    """Writes the secrets of its distribution and reads those of all, with the keys it was started with."""

    def __init__(self, database: Database, own: UUID, others: list[UUID]) -> None:
        super().__init__()
        self.database, self.own, self.others = database, own, others
        self.keys: tuple[str, ...] = STEPS[0]
        self.rounds = 0
        self.has_passed = threading.Condition()
        self.is_over = False
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for number in count():
                if self.is_over:
                    return
                self.work(with_keys(self.keys), number)
                with self.has_passed:
                    self.rounds += 1
                    self.has_passed.notify_all()
        except BaseException as error:  # noqa: BLE001 (told to the test)
            self.failure = error
            with self.has_passed:
                self.has_passed.notify_all()

    def work(self, settings: Settings, number: int) -> None:
        with self.database.transaction() as session:
            values = {"signingSecret": f"{number:032}", "botToken": f"xoxb-{number:030}"}
            slack = NETWORKS["slack"]
            put_network_settings(
                session, settings, actor=OPERATOR, distribution_id=self.own, network=slack, values=values
            )
        for at in self.others:
            with self.database.autocommit() as session:
                get_credentials(session, Encryption(settings), at, "slack")

    def wait_for_rounds(self) -> None:
        """Wait until the process has started and completed some more rounds."""
        with self.has_passed:
            wanted = self.rounds + ROUNDS
            assert self.has_passed.wait_for(lambda: self.failure or self.rounds >= wanted, timeout=60)
        if self.failure is not None:
            raise self.failure

    def restart(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self.wait_for_rounds()


@pytest.fixture
def processes(database: Database) -> Iterator[list[Process]]:
    factory = IdentityFactory(database, with_keys(STEPS[0]))
    ids = [make_world(factory).distribution.distribution.id for _ in range(3)]
    with database.transaction() as session:
        session.execute(text("UPDATE distributions SET networks = ARRAY['slack']"))
    for at in ids:
        Process(database, at, []).work(with_keys(STEPS[0]), 0)
    processes = [Process(database, at, ids) for at in ids]
    for process in processes:
        process.start()
    yield processes
    for process in processes:
        process.is_over = True
    for process in processes:
        process.join(60)
        assert not process.is_alive()
    assert [process.failure for process in processes] == [None] * len(processes)


def test_encryption_key_is_replaced_under_load_and_the_old_one_removed(
    database: Database, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reencryption, "BATCH_SIZE", 1)
    for keys in STEPS[1:3]:
        for process in processes:
            process.restart(keys)
    kill_command(database, monkeypatch, after=2)
    done = reencrypt(database, with_keys((NEW, OLD)), all_tables())
    assert done.unreadable == ()
    for process in processes:
        process.restart(STEPS[3])
    again = reencrypt(database, with_keys((NEW,)), all_tables())
    assert (again.renewed, again.unreadable) == (0, ())


def kill_command(database: Database, monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    """Kill the command during its run, to show that renewed secrets stay and that it can be repeated."""
    renewed: list[bytes] = []
    renew = Encryption.renew

    def die(encryption: Encryption, token: bytes) -> bytes:
        if len(renewed) == after:
            raise KeyboardInterrupt
        renewed.append(token)
        return renew(encryption, token)

    with monkeypatch.context() as patched:
        patched.setattr(Encryption, "renew", die)
        with pytest.raises(KeyboardInterrupt):
            reencrypt(database, with_keys((NEW, OLD)), all_tables())
    assert len(renewed) == after


def test_process_without_an_encryption_key_cannot_decrypt_its_secrets() -> None:
    """So the new key must first be added after the old one in every process."""
    token = Encryption(with_keys((NEW, OLD))).encrypt("secret")
    with pytest.raises(InvalidToken):
        Encryption(with_keys((OLD,))).decrypt(token)
    assert Encryption(with_keys((OLD, NEW))).decrypt(token) == "secret"
