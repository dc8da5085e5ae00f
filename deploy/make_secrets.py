"""Write the secrets of `compose.yaml` below `deploy/secrets`, those that are not there yet; run it once per deployment.

The directory is closed; its files are not, because containers read them under accounts of their own. Keep a copy of
`encryption_keys`: a database without it has lost the secrets stored in it. A first catalog of models is written into
`deploy/models`, for the operator to replace.
"""

import base64
import os
import secrets
import sys
from pathlib import Path

FIRST_CATALOG = """\
# The models on offer. It is read again when it changes. models.example.toml shows what it may hold; the keys of
# providers stand in secrets/providers.env, a NAME=value a line.
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
    """Write what is missing."""
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
    """Write a first catalog, of a script that answers, unless there is one."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    _keep(directory / "models.toml", FIRST_CATALOG)


def _keep_addresses(directory: Path, migrations: str, application: str) -> None:
    """Write the two addresses of the database; where one is known from before there were roles, it serves as both."""
    address = "postgresql://{}:{}@postgres/quartermaster"
    known = directory / "database_url"
    owner = address.format("quartermaster_migrations", migrations)
    _keep(directory / "migrations_database_url", known.read_text() if known.exists() else owner)
    _keep(known, address.format("quartermaster_app", application))


def _keep(path: Path, value: str) -> str:
    if not path.exists():
        path.write_text(value)
        path.chmod(0o644)
    return path.read_text()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("secrets"))
    write_catalog(Path(__file__).with_name("models"))
