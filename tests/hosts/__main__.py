"""Run the load of chaos over many hosts, cut links and kill hosts; exit with 1 if anything was lost.

With `--rolling` no host is killed. Instead the next version, an installed wheel, replaces every process under load,
one after the other, after its migration.
"""

import argparse
import random
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.__main__ import WORKLOADS
from tests.chaos.client_threads import Crowd, background_work_of
from tests.chaos.installation import set_up
from tests.chaos.observations import Observations
from tests.chaos.run_report import RunReport
from tests.hosts import network
from tests.hosts.installation import build
from tests.hosts.rolling import REPLACED, NextVersion, RollingRelease
from tests.hosts.strikes import Strikes


def main() -> int:
    """Parse the arguments, enter own namespaces, run, print the report, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.hosts", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to cut and to kill")
    parser.add_argument("--seed", type=int, default=None, help="choose the same strikes again")
    parser.add_argument("--rolling", action="store_true", help="release the next version instead")
    parser.add_argument(
        "--broker", choices=("valkey", "rabbitmq"), default="valkey", help="what carries messages"
    )
    parser.add_argument(
        "--replace", nargs="+", choices=REPLACED, default=REPLACED, help="with --rolling: on some hosts only"
    )
    parser.add_argument("--only", choices=WORKLOADS, nargs="+", help="some kinds of work, instead of all")
    parser.add_argument("--logs", type=Path, help="where to leave the logs of all processes")
    options = parser.parse_args()
    try:
        network.enter("tests.hosts")
    except network.NotPermitted as error:
        print(f"hosts: not run, network namespaces are not permitted here ({error})")
        return 0
    options.seed = random.randrange(1 << 32) if options.seed is None else options.seed
    options.only = options.only or list(WORKLOADS)
    form = "a rolling release" if options.rolling else f"{options.seconds:.0f} s of strikes"
    print(
        f"hosts: {form} over {options.broker}, under {', '.join(options.only)}, seed {options.seed}",
        flush=True,
    )
    with ExitStack() as closing:
        directory = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="quartermaster-hosts-")))
        if options.logs is not None:
            closing.callback(_keep_logs, directory, options.logs)
        return _run(directory, closing, options)


def _keep_logs(directory: Path, kept: Path) -> None:
    """Copy every log of a run; its other files are deleted with the run."""
    for log in directory.rglob("*.log"):
        to = kept / log.relative_to(directory)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, to)


def _run(directory: Path, closing: ExitStack, options: argparse.Namespace) -> int:
    observations = Observations()
    run_report = RunReport(observations)
    version = NextVersion(directory) if options.rolling else None
    hosts = build(directory, closing, over_rabbitmq=options.broker == "rabbitmq")
    run_report.note("hosts and servers")
    loses_links = not options.rolling
    installation = set_up(hosts.stack, [hosts.url], observations, options.seed, loses_links=loses_links)
    closing.callback(installation.database.dispose)
    kinds = [WORKLOADS[name] for name in options.only]
    workloads = [kind(installation, closing) for kind in kinds]
    hosts.start()
    run_report.note("processes")
    crowd = Crowd(installation, workloads, background_work_of(hosts.stack, kinds), run_report)
    crowd.begin()
    if version is None:
        befallen: Strikes | RollingRelease = Strikes(hosts, random.Random(options.seed), options.seconds)
    else:
        befallen = RollingRelease(hosts, version, observations, options.replace)
    befallen.play()
    crowd.let_finish()
    run_report.note("all there again")
    crowd.finish()
    befallen.judge()
    crowd.compare(lambda: hosts.bucket.find_faults(hosts.stack), meanwhile=befallen.tend)
    print(f"hosts: {', '.join(hosts.by_name)}")
    status = run_report.report(hosts.stack, {befallen.what: befallen.done})
    print(f"lost {len(observations.violations)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
