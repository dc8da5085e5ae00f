"""Run chaos for a number of seconds and print a report. The exit status is 1 if the service broke a promise."""

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.chaos.agents.workload import Agents
from tests.chaos.budgets.workload import Budgets
from tests.chaos.console.workload import Console
from tests.chaos.files.workload import Files
from tests.chaos.media.workload import Media
from tests.chaos.models.workload import Models
from tests.chaos.remote.workload import RemoteAgents
from tests.chaos.run import Run
from tests.chaos.sabotage import MODES
from tests.chaos.strikes.base import KINDS
from tests.chaos.workload import Workload
from tests.support.processes.stack import Servers
from tests.support.servers.rabbitmq import RabbitMQ

WORKLOADS: dict[str, type[Workload]] = {
    "files": Files,
    "models": Models,
    "budgets": Budgets,
    "media": Media,
    "agents": Agents,
    "remote": RemoteAgents,
    "console": Console,
}


def main() -> int:
    """Parse the arguments, run chaos, print the report, and return the exit status."""
    options = _parser().parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    names = options.only or list(WORKLOADS)
    print(
        f"chaos: {options.seconds:.0f} s of {', '.join(names)} over {options.broker}, seed {seed}", flush=True
    )
    with tempfile.TemporaryDirectory(prefix="quartermaster-chaos-") as directory:
        rabbitmq = RabbitMQ(Path(directory) / "rabbitmq") if options.broker == "rabbitmq" else None
        servers = Servers(Path(directory) / "servers", rabbitmq=rabbitmq)
        servers.start()
        try:
            workloads = [WORKLOADS[name] for name in names]
            stack = Path(directory) / "stack"
            with (
                _keeping_logs(stack) as ended_as_expected,
                Run(
                    stack, servers, workloads, seed=seed, sabotage=options.sabotage, strikes=options.strikes
                ) as run,
            ):
                run.play(options.seconds, dict(options.until))
                status = run.report()
                if status == 0 or options.sabotage:
                    ended_as_expected()
                return status
        finally:
            servers.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="seconds of load and strikes (default 30)"
    )
    parser.add_argument(
        "--until",
        type=_counted,
        nargs="+",
        default=(),
        metavar="KIND=COUNT",
        help="end earlier, once these counts are reached",
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="seed of an earlier run, to repeat its random choices"
    )
    parser.add_argument("--only", choices=WORKLOADS, nargs="+", help="run only these workloads")
    parser.add_argument(
        "--strikes",
        choices=KINDS,
        nargs="*",
        default=KINDS,
        help="use only these kinds of strikes; none shows the effect of --sabotage alone",
    )
    parser.add_argument(
        "--sabotage", choices=sorted(MODES), nargs="+", default=(), help="break these rules in the service"
    )
    parser.add_argument(
        "--broker", choices=("valkey", "rabbitmq"), default="valkey", help="the message broker"
    )
    return parser


@contextlib.contextmanager
def _keeping_logs(directory: Path) -> Iterator[Callable[[], object]]:
    """Copy the logs of all processes unless the run has succeeded: a failure is hard to reproduce."""
    with contextlib.ExitStack() as keeping:
        keeping.callback(_keep_logs, directory)
        yield keeping.pop_all


def _keep_logs(directory: Path) -> None:
    kept = Path(tempfile.mkdtemp(prefix="quartermaster-chaos-logs-"))
    for log in directory.glob("*.log"):
        shutil.copy(log, kept)
    print(f"the logs of the processes are kept in {kept}", flush=True)


def _counted(text: str) -> tuple[str, int]:
    kind, _, count = text.partition("=")
    return kind, int(count)


if __name__ == "__main__":
    sys.exit(main())
