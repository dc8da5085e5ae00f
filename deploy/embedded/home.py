"""The home directory of an installation of `make up`: databases, file content, settings, secrets and logs.

One process at a time owns the directory: it holds a file lock, which the kernel releases when the process ends.
Installations with different homes and ports are independent.
"""

import base64
import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from shared.observability.multiprocess_metrics import make_directory

DEFAULT = Path(__file__).resolve().parents[2] / "var"
MEMORY = Path("/dev/shm")  # noqa: S108 (the directories created in it are readable by this account only)


class HomeInUse(Exception):
    """Another process runs an installation in this directory."""


class Home:
    """The home directory `$QM_HOME` and the paths of the files in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.postgres = self.directory / "postgres"
        self.valkey = self.directory / "valkey"
        self.valkey_models = self.directory / "valkey-models"
        self.blobs = self.directory / "blobs"
        self.logs = self.directory / "logs"
        self.credentials = self.directory / "credentials.json"
        self._settings = self.directory / "settings.json"
        self._lock: int | None = None
        self._metrics: Path | None = None

    def claim(self) -> None:
        """Create and lock the directory until this process ends. Raises HomeInUse if another process holds the lock."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Set O_CLOEXEC, so that a child that outlives this process does not keep the lock.
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise HomeInUse(
                f"Another Quartermaster uses {self.directory}: stop it, or set QM_HOME to another directory."
            ) from error
        self._lock = lock

    def write_settings(self, settings: Mapping[str, str]) -> None:
        """Store the settings of this run, for commands that run without DATABASE_URL (`read_settings`)."""
        write_privately(self._settings, json.dumps(dict(settings), indent=2) + "\n")

    def read_settings(self) -> dict[str, str]:
        """Return the settings of the current or last run, or an empty dictionary if nothing has run."""
        try:
            settings: dict[str, str] = json.loads(self._settings.read_text())
        except FileNotFoundError:
            return {}
        return settings

    def make_metrics_directory(self) -> Path:
        """Create an empty directory for metrics and return it."""
        # Create the directory in memory if possible, so that processes can write metrics when the disk is full.
        try:
            self._metrics = make_directory(MEMORY)
        except OSError:
            self._metrics = make_directory(self.directory)
        return self._metrics

    def remove_metrics_directory(self) -> None:
        """Delete the metrics of this run."""
        if self._metrics is not None:
            shutil.rmtree(self._metrics, ignore_errors=True)

    def encryption_keys(self) -> str:
        """Return ENCRYPTION_KEYS. The first call generates and stores a key, which encrypts secrets in the database."""
        path = self.directory / "secrets"
        if not path.exists():
            write_privately(path, f"ENCRYPTION_KEYS={base64.urlsafe_b64encode(os.urandom(32)).decode()}\n")
        lines = (line.partition("=") for line in path.read_text().splitlines())
        return {name: value for name, _, value in lines}["ENCRYPTION_KEYS"]


def write_privately(path: Path, text: str) -> None:
    """Replace a file atomically and durably. Only the file's owner can read the file."""
    draft = path.with_suffix(".new")
    # Remove the draft of a killed process, because O_EXCL fails if the file exists. O_EXCL guarantees that the file
    # is new and has the mode below.
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
