"""Read settings from files in which an orchestrator mounts its secrets, one setting per file.

The file `/run/secrets/database_url` sets DATABASE_URL unless the variable is set. SECRETS_DIRECTORY names another
directory.
"""

from collections.abc import MutableMapping
from pathlib import Path

DIRECTORY = "/run/secrets"
LIMIT_BYTES = 64 * 1024  # larger files are ignored: they are not settings


def read_secret_files(environment: MutableMapping[str, str]) -> None:
    """Add the settings of mounted files to the environment; existing variables keep their values."""
    directory = Path(environment.get("SECRETS_DIRECTORY") or DIRECTORY)
    if not directory.is_dir():
        return
    for path in sorted(directory.iterdir()):
        # Kubernetes also mounts links such as `..data`; only names of variables are settings.
        if path.name.isidentifier() and path.is_file() and path.stat().st_size <= LIMIT_BYTES:
            # strip: files written by `echo` end with a line break, which no setting may contain.
            environment.setdefault(path.name.upper(), path.read_text().strip())
