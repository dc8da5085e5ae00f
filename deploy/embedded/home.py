"""The directory that holds everything an embedded Quartermaster keeps: databases, content, secrets.

One running copy owns it by a lock that dies with its process. Copies with other homes and ports do not meet.
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
MEMORY = Path("/dev/shm")  # noqa: S108 (the directories in it are for our account alone)


class HomeInUse(Exception):
    """Another Quartermaster runs over this directory."""


class Home:
    """The layout of `$QM_HOME`."""

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
        """Take the directory for this process and its life; raises `HomeInUse`."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise HomeInUse(
                f"Another Quartermaster runs in {self.directory}; choose another with QM_HOME."
            ) from error
        self._lock = lock

    def note_settings(self, settings: Mapping[str, str]) -> None:
        """Leave the settings of this run to commands that are given no database (`read_settings`)."""
        write_privately(self._settings, json.dumps(dict(settings), indent=2) + "\n")

    def read_settings(self) -> dict[str, str]:
        """Give the settings of the copy that runs here, or ran here last; none where none has."""
        try:
            settings: dict[str, str] = json.loads(self._settings.read_text())
        except FileNotFoundError:
            return {}
        return settings

    def make_metrics(self) -> Path:
        """Make an empty directory for metrics: in memory where there is such a place, as disks become full."""
        try:
            self._metrics = make_directory(MEMORY)
        except OSError:
            self._metrics = make_directory(self.directory)
        return self._metrics

    def forget_metrics(self) -> None:
        """Remove the metrics of this run."""
        if self._metrics is not None:
            shutil.rmtree(self._metrics, ignore_errors=True)

    def encryption_keys(self) -> str:
        """Give the keys that encrypt secrets in the database, made once and kept; losing them loses those secrets."""
        path = self.directory / "secrets"
        if not path.exists():
            write_privately(path, f"ENCRYPTION_KEYS={base64.urlsafe_b64encode(os.urandom(32)).decode()}\n")
        lines = (line.partition("=") for line in path.read_text().splitlines())
        return {name: value for name, _, value in lines}["ENCRYPTION_KEYS"]


def write_privately(path: Path, text: str) -> None:
    """Write a file whole or not at all, for our eyes only."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
