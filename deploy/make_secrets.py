"""Generate the missing secrets of `compose.yaml` in `deploy/secrets`, and a first model catalog in `deploy/models`.

Run this program once for each installation. The program never replaces a file. Keep a backup of `encryption_keys`:
without this file, the secrets in the database cannot be decrypted.
"""

import base64
import os
import secrets
import sys
from pathlib import Path

FIRST_CATALOG = """\
# The models that callers may use. The service reloads this file when it changes; models.example.toml shows all keys.
# API keys of providers belong in secrets/providers.env, one NAME=value per line.
[providers.scripted]
kind = "scripted"

[[models]]
id = "scripted/echo"
name = "Scripted echo"
description = "Not a language model: a script that repeats the prompt, for tests and first steps."
prompt_price = "1"
completion_price = "2"
context_length = 100_000
max_completion_tokens = 100_000
upstreams = [{ provider = "scripted", model = "echo" }]
"""


def main(directory: Path) -> None:
    """Write the missing secrets to a directory that only this account can open."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _keep(directory / "postgres_password", secrets.token_urlsafe(24))
    migrations = _keep(directory / "migrations_password", secrets.token_urlsafe(24))
    application = _keep(directory / "application_password", secrets.token_urlsafe(24))
    valkey = _keep(directory / "valkey_password", secrets.token_urlsafe(24))
    _keep_addresses(directory, migrations, application)
    _keep(directory / "redis_url", f"redis://:{valkey}@valkey:6379/0")
    _keep(directory / "models_redis_url", f"redis://:{valkey}@valkey-models:6379/0")
    _keep(directory / "encryption_keys", base64.urlsafe_b64encode(os.urandom(32)).decode())
    _keep(directory / "s3_access_key_id", secrets.token_hex(10))
    _keep(directory / "s3_secret_access_key", secrets.token_urlsafe(30))


def write_catalog(directory: Path) -> None:
    """Write a model catalog with one scripted model, unless a catalog exists."""
    # Let all accounts read the directory: a catalog contains no secrets, only names of the variables of API keys.
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    _keep(directory / "models.toml", FIRST_CATALOG)


def _keep_addresses(directory: Path, migrations: str, application: str) -> None:
    """Write the database URLs of the migrations role and of the application role, unless they exist."""
    address = "postgresql://{}:{}@postgres/quartermaster"
    # An older release wrote one URL, for a role that owns the schema: use this URL for both roles.
    known = directory / "database_url"
    owner = address.format("quartermaster_migrations", migrations)
    _keep(directory / "migrations_database_url", known.read_text() if known.exists() else owner)
    _keep(known, address.format("quartermaster_app", application))


def _keep(path: Path, value: str) -> str:
    if not path.exists():
        path.write_text(value)
        # Let all accounts read the file, because containers run under other accounts. The directory is private.
        path.chmod(0o644)
    return path.read_text()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("secrets"))
    write_catalog(Path(__file__).with_name("models"))
