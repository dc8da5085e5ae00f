"""One run of chaos: a stack, its workloads, a monkey, and the comparison at the end."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.chaos import faults
from tests.chaos.client_threads import Crowd, background_work_of
from tests.chaos.installation import set_up
from tests.chaos.monkey import Monkey
from tests.chaos.observations import Observations
from tests.chaos.run_report import RunReport
from tests.chaos.sabotage import sabotaged
from tests.chaos.strikes.base import Chance, Strikes
from tests.chaos.strikes.clock_strikes import ClockStrikes
from tests.chaos.strikes.interceptors import Interceptor, RabbitMQInterceptor, ValkeyInterceptor
from tests.chaos.strikes.link_strikes import AnswerStrikes, LinkStrikes, lead_through
from tests.chaos.strikes.message_strikes import MessageStrikes
from tests.chaos.strikes.process_strikes import ProcessStrikes
from tests.chaos.strikes.relays import Relays
from tests.chaos.strikes.server_strikes import DiskStrikes, ServerStrikes
from tests.chaos.supervised_process import SupervisedProcess
from tests.chaos.workload import Workload
from tests.support.data.inventory import find_faults
from tests.support.models.model_service import use_impatient_front
from tests.support.processes.stack import Servers, Stack, free_port
from tests.support.processes.wrong_clock import with_wrong_clock
from tests.support.servers.small_disks import CannotMount, SmallDisk, mounted_disk

FRONTS = 2
DISK_BYTES = 1 << 30
SETTINGS = {
    "BLOB_STORE_RESERVE_BYTES": str(DISK_BYTES >> 4),
    "ACCESS_TOKEN_SECONDS": "86400",  # The clients of a long run do not refresh their tokens.
    "LOG_LEVEL": "WARNING",
    "WEB_DRAIN_SECONDS": "5",
    "WEB_THREADS": "128",
    "MODELS_THREADS": "32",
    "UPLOAD_GRACE_SECONDS": "30",
}


class Run:
    """One run, whose processes end with its block."""

    def __init__(
        self,
        directory: Path,
        servers: Servers,
        workloads: Sequence[type[Workload]],
        *,
        seed: int,
        sabotage: Sequence[str],
        strikes: Collection[str],
    ) -> None:
        """Prepare a run; `strikes` are the kinds of strikes to use."""
        self._closing = ExitStack()
        self._observations = Observations()
        self._run_report = RunReport(self._observations)
        disk = self._mount_disk(directory)
        self._stack = Stack(
            directory,
            servers,
            settings=SETTINGS,
            change_command=partial(_change_command, sabotage=sabotage),
            blob_store=None if disk is None else (disk.path / "blobs").as_uri(),
        )
        if disk is not None:
            self._stack.blobs = disk.path / "blobs"
        self._is_calm = not strikes
        self._ports = [self._stack.web_port, *(free_port() for _ in range(self._wanted(FRONTS) - 1))]
        self._installation = set_up(
            self._stack, [f"http://127.0.0.1:{port}" for port in self._ports], self._observations, seed
        )
        self._workloads = [make(self._installation, self._closing) for make in workloads]
        self._background_work = background_work_of(self._stack, workloads)
        chance, supervised = Chance(seed), list[SupervisedProcess]()
        made = [make() for kind, make in self._strikes(supervised, disk, chance).items() if kind in strikes]
        self._monkey = Monkey(self._background_work, servers, chance, supervised, made)

    def __enter__(self) -> Self:
        """Return the run; no process is started yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill every process."""
        self._stack.kill_all()
        self._installation.database.dispose()
        self._closing.close()

    def play(self, seconds: float, until: Mapping[str, int]) -> None:
        """Run load and strikes for a number of seconds, or until the counts are reached; then drain and compare."""
        self._start()
        self._run_report.note("started")
        crowd = Crowd(self._installation, self._workloads, self._background_work, self._run_report)
        crowd.begin()
        done = self._monkey.done
        self._monkey.play(
            seconds, lambda: bool(until) and self._observations.has_counted(until, befallen=done)
        )
        crowd.let_finish()
        self._monkey.rest()
        self._run_report.note("all alive again")
        crowd.finish()
        crowd.compare(lambda: find_faults(self._stack), meanwhile=self._monkey.tend)

    def report(self) -> int:
        """Print the counts, and return the exit status."""
        return self._run_report.report(self._stack, {"faults injected": self._monkey.done})

    def _strikes(
        self, supervised: Sequence[SupervisedProcess], disk: SmallDisk | None, chance: Chance
    ) -> Mapping[str, Callable[[], Strikes]]:
        """Return the factory of each kind of strikes."""
        stack, enter = self._stack, self._closing.enter_context

        def at_messages() -> Strikes:
            return MessageStrikes(
                [enter(closing(interceptor)) for interceptor in _make_interceptors(stack, chance)], chance
            )

        @cache
        def relays() -> Relays:
            return enter(closing(lead_through(stack)))

        strikes: dict[str, Callable[[], Strikes]] = {
            "processes": partial(ProcessStrikes, supervised, self._background_work, chance),
            "clocks": partial(ClockStrikes, supervised, stack.directory, chance),
            "servers": partial(ServerStrikes, stack.servers, chance),
            "messages": at_messages,
            "links": lambda: LinkStrikes(relays(), chance),
            "answers": lambda: AnswerStrikes(relays(), chance),
        }
        return strikes if disk is None else strikes | {"disk": partial(DiskStrikes, disk, chance)}

    def _mount_disk(self, directory: Path) -> SmallDisk | None:
        """Mount a small disk for the blob store, as a target of strikes. Return None if none can be mounted."""
        try:
            return self._closing.enter_context(mounted_disk(directory / "small", size_bytes=DISK_BYTES))
        except CannotMount as error:
            print(f"no disk befalls anything: {error}")
            return None

    def _wanted(self, count: int) -> int:
        """Return the number of processes of a kind: one if no strikes kill any."""
        return min(count, 1) if self._is_calm else count

    def _start(self) -> None:
        stack, monkey = self._stack, self._monkey
        for port in self._ports:
            monkey.keep("web", partial(stack.web, port=port), faults.WEB)
        for name, points in faults.WORKERS.items():
            for _ in range(self._wanted(max(work.workers.get(name, 0) for work in self._workloads))):
                monkey.keep(f"{name} worker", partial(stack.worker, name, LOG_LEVEL="INFO"), points)
        monkey.keep("beat", stack.beat)
        for supervised in monkey.supervised[: len(self._ports)]:
            supervised.service.wait_until_answering()


def _change_command(command: Sequence[str], sabotage: Sequence[str]) -> Sequence[str]:
    command = use_impatient_front(command)
    return with_wrong_clock(sabotaged(command, sabotage) if sabotage else command)


def _make_interceptors(stack: Stack, chance: Chance) -> list[Interceptor]:
    """Return access to all message queues; a separate broker may carry model calls."""
    if stack.servers.rabbitmq is not None:
        return [RabbitMQInterceptor(stack.broker_url, chance.random)]
    calls = ValkeyInterceptor(stack.models_redis_url, chance.random, is_for_calls=True)
    return [ValkeyInterceptor(stack.broker_url, chance.random), calls]
