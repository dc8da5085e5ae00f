"""Take settings from files, one each, where an orchestrator mounts its secrets.

A file `database_url` below `/run/secrets` (or `$SECRETS_DIRECTORY`) stands for the variable DATABASE_URL; a variable
that is set wins.
"""

from collections.abc import MutableMapping
from pathlib import Path

DIRECTORY = "/run/secrets"
LIMIT_BYTES = 64 * 1024


def read_secret_files(environment: MutableMapping[str, str]) -> None:
    """Add to the environment what the mounted files say."""
    directory = Path(environment.get("SECRETS_DIRECTORY") or DIRECTORY)
    if not directory.is_dir():
        return
    for path in sorted(directory.iterdir()):
        if path.name.isidentifier() and path.is_file() and path.stat().st_size <= LIMIT_BYTES:
            environment.setdefault(path.name.upper(), path.read_text().strip())
