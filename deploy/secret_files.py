"""Read settings from secret files that an orchestrator mounts. Each file contains one setting.

The file `/run/secrets/database_url` sets DATABASE_URL unless the variable is set. SECRETS_DIRECTORY names another
directory.
"""

from collections.abc import MutableMapping
from pathlib import Path

DIRECTORY = "/run/secrets"
LIMIT_BYTES = 64 * 1024  # larger files are ignored: they are not settings


def read_secret_files(environment: MutableMapping[str, str]) -> None:
    """Add the settings in mounted files to the environment. Existing variables keep their values."""
    directory = Path(environment.get("SECRETS_DIRECTORY") or DIRECTORY)
    if not directory.is_dir():
        return
    for path in sorted(directory.iterdir()):
        # Read only files whose names can be variables, because Kubernetes also mounts links such as `..data`.
        if path.name.isidentifier() and path.is_file() and path.stat().st_size <= LIMIT_BYTES:
            # Strip the text: a file that `echo` wrote ends with a line break, which no setting may contain.
            environment.setdefault(path.name.upper(), path.read_text().strip())
