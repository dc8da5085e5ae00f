"""Credentials of endpoints stay readable when the encryption key is replaced."""

from cryptography.fernet import Fernet

from deploy.cli.commands.encryption import all_tables
from shared.a2a.remote.endpoints import Credential
from shared.db.database import Database
from shared.encryption import Encryption
from shared.identity.credentials.reencryption import reencrypt
from tests.shared.a2a.remote.installations import DEVELOPING, make_installation
from tests.support.data.identity import make_settings


def test_a_credential_is_encrypted_again_with_the_newest_key(database: Database) -> None:
    old, new = (Fernet.generate_key().decode() for _ in range(2))
    installation = make_installation(database, encryption_keys=(old,))
    installation.put("http://127.0.0.1:9", credential=Credential(header="X-API-Key", value="right"))
    both, newest = (make_settings(**DEVELOPING, encryption_keys=keys) for keys in ((new, old), (new,)))
    done = reencrypt(database, both, all_tables())
    assert (done.renewed > 0, done.unreadable) == (True, ())
    headers = installation.endpoint().credential_headers(Encryption(newest))
    assert headers == {"X-API-Key": "right"}
