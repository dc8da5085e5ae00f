"""A real RabbitMQ for a test session, from Debian's package `rabbitmq-server`; the first test that needs it starts it.

It needs no privileges. Every stack and every test has its own vhost. Without the package, the tests that need it are
skipped with that reason; `.ci/run` installs it.
"""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.ports import find_free_port
from deploy.supervision.child_processes import Program, kill, spawn
from shared.errors import ServiceUnavailable
from shared.messaging.broker import Broker
from shared.messaging.publisher import create_celery

PROGRAMS = Path("/usr/lib/rabbitmq/bin")
"""The programs themselves: those in /usr/sbin insist on an account and on fixed directories."""
START_SECONDS = 90.0
SETTLED_SECONDS = 6.0
"""RabbitMQ keeps what it knows of a new quorum queue in memory for so long; killed before, it never serves it again."""
ACCOUNT = "guest"
CONFIGURATION = """\
listeners.tcp.1 = {address}:{port}
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
consumer_timeout = 1800000
loopback_users = none
"""


_UNTIL_IN_ALARM = (
    "(fun Wait() -> case rabbit_alarm:get_alarms() of [] -> timer:sleep(10), Wait(); _ -> ok end end)()"
)
"""The alarm is told of to connections before it is in this list."""


class RabbitMQ:
    """One node over a directory, which can be killed and restarted."""

    name = "rabbitmq"

    def __init__(self, directory: Path, *, address: str = "127.0.0.1", prefix: tuple[str, ...] = ()) -> None:
        """Prepare a node; a command `prefix` runs it on another host, which has the `address`."""
        self.directory = directory
        self._address, self._prefix = address, prefix
        self.port, self._dist, self._epmd_port = (find_free_port() for _ in range(3))
        self._vhosts, self._calls = itertools.count(), itertools.count()
        self._declared_at = float("-inf")
        self._environment = os.environ | {
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"quartermaster-{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def start(self) -> None:
        """Start the node, and the port mapper of its tools; wait until it accepts connections."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "rabbitmq.conf").write_text(
            CONFIGURATION.format(address=self._address, port=self.port)
        )
        (self.directory / "plugins").write_text("[].\n")
        # If the node started it, it would outlive the node.
        self._epmd = spawn(
            self._program("epmd", shutil.which("epmd") or "epmd", "-port", str(self._epmd_port))
        )
        self.start_again()

    def start_again(self) -> None:
        """Start the node after it was killed."""
        self._node = spawn(self._program("node", str(PROGRAMS / "rabbitmq-server")))
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self._node.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"RabbitMQ did not start; see {self.directory / 'node.log'}")
            time.sleep(0.1)

    def is_ready(self) -> bool:
        """Return whether the node accepts its administrator."""
        with (
            contextlib.closing(Broker.of(self.url_of("%2F"))) as broker,
            contextlib.suppress(ServiceUnavailable),
        ):
            return broker.depth("none") == 0
        return False

    def kill(self) -> None:
        """Kill the node by SIGKILL, after it has stored the queues of new installations."""
        time.sleep(max(0.0, self._declared_at + SETTLED_SECONDS - time.monotonic()))
        kill(self._node)

    def stop(self) -> None:
        """Stop everything."""
        kill(self._node)
        kill(self._epmd)

    def url_of(self, vhost: str) -> str:
        """Return the URL of a vhost."""
        return f"amqp://{ACCOUNT}:{ACCOUNT}@{self._address}:{self.port}/{vhost}"

    def new_url(self) -> str:
        """Create an unused vhost; return its URL."""
        name = f"test-{next(self._vhosts)}"
        self.evaluate(f'rabbit_vhost:add(<<"{name}">>, <<"{ACCOUNT}">>)')
        everything = ", ".join(['<<".*">>'] * 3)
        self.evaluate(
            "rabbit_auth_backend_internal:set_permissions("
            f'<<"{ACCOUNT}">>, <<"{name}">>, {everything}, <<"{ACCOUNT}">>)'
        )
        return self.url_of(name)

    def new_installation_url(self) -> str:
        """Create a vhost with the queues of the service."""
        url = self.new_url()
        with contextlib.closing(create_celery(url)) as app, app.connection_for_write() as connection:
            for queue in app.conf.task_queues:
                queue(connection.default_channel).declare()
        self._declared_at = time.monotonic()
        return url

    def evaluate(self, call: str) -> None:
        """Run an Erlang call on the node that must return `ok`."""
        # `rabbitmqctl` starts an Erlang for each command: that takes seconds of CPU, and under load it gives up
        # (exit 69) before the handshake with the node. This call takes 20 ms, and waits.
        # Use a unique name: `-r` draws the same name for all calls within one second, and the node refuses the
        # second one while it knows the first.
        name = f"caller-{os.getpid()}-{next(self._calls)}"
        command = [
            *self._prefix,
            *("erl_call", "-address", f"127.0.0.1:{self._dist}", "-c", self._cookie(), "-h", name),
            *("-timeout", str(int(START_SECONDS)), "-e"),
        ]
        done = subprocess.run(command, input=f"{call}.\n", capture_output=True, text=True, check=False)
        if done.stdout.strip() != "{ok, ok}":
            raise AssertionError(
                f"RabbitMQ made no {call}: exit {done.returncode}, {done.stdout}{done.stderr}; its node"
                f" {'is running' if self._node.poll() is None else 'has ended'}: {self.directory / 'node.log'}"
            )

    def _cookie(self) -> str:
        return (self.directory / ".erlang.cookie").read_text().strip()

    @contextlib.contextmanager
    def in_alarm(self) -> Iterator[None]:
        """Raise a memory alarm on the node within the block: it then reads nothing from publishers."""
        self.evaluate("vm_memory_monitor:set_vm_memory_high_watermark({absolute, 1000}), " + _UNTIL_IN_ALARM)
        try:
            yield
        finally:
            self.evaluate("vm_memory_monitor:set_vm_memory_high_watermark({absolute, 1000000000})")

    @contextlib.contextmanager
    def mute(self) -> Iterator[None]:
        """Pause the node without closing its port: the kernel still accepts connections for it."""
        os.killpg(self._node.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._node.pid, signal.SIGCONT)

    def _program(self, name: str, *command: str) -> Program:
        return Program(
            name=name,
            command=command,
            environment=self._environment,
            directory=self.directory,
            log=self.directory / f"{name}.log",
            prefix=self._prefix,
        )


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """Run RabbitMQ for the session; a test that kills it restarts it before it ends."""
    if not (PROGRAMS / "rabbitmq-server").exists():
        pytest.skip("needs RabbitMQ: apt-get install rabbitmq-server")
    node = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
    node.start()
    yield node
    node.stop()
