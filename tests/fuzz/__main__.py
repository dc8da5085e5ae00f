"""Send hostile and valid requests, generated from the OpenAPI document, to the real service; then fuzz the parsers.

`python -m tests.fuzz` takes some ten minutes, `--quick` two or three. Any 5xx, undocumented response, accepted invalid
request or refused valid request is a failure. The long form uses a new seed each time and prints it. The quick form
runs for each change and always uses the same seed, so that its result depends on the change only.
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.fuzz.hooks import DISTRIBUTION
from tests.support.agents.rest_clients import exchange_token
from tests.support.processes.stack import Servers, Service, Stack

HERE = Path(__file__).parent
_SEED = 20261123


def main() -> None:
    """Fuzz as an agent, an owner and a distribution, then the parsers alone. Exit with 1 on any failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer examples, from a fixed seed")
    parser.add_argument("--seed", type=int, help="the seed that an earlier run printed")
    arguments = parser.parse_args()
    examples = 8 if arguments.quick else 150
    seed = arguments.seed or (_SEED if arguments.quick else random.getrandbits(64))
    print(f"fuzz: seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        failed = _fuzz_service(Path(directory), examples, seed)
    parsers = [sys.executable, "-m", "pytest", "-q", "--hypothesis-seed", str(seed), str(HERE)]
    failed |= _run(parsers, {"FUZZ_EXAMPLES": str(examples * 25)})
    sys.exit(failed)


def _fuzz_service(directory: Path, examples: int, seed: int) -> int:
    """Fuzz two installations side by side, so that requests of one run do not change what the other reads."""
    servers = Servers(directory / "servers")
    servers.start()
    try:
        with (
            _installation(directory / "agents", servers) as agents,
            _installation(directory / "owners", servers) as owners,
            ThreadPoolExecutor() as side_by_side,
        ):
            runs = (
                side_by_side.submit(_fuzz_as_agent, agents, examples, seed),
                side_by_side.submit(_fuzz_as_owner_and_distribution, owners, examples, seed),
            )
            failed = max(run.result() for run in runs)
            return failed | _report_failures(agents.front.log) | _report_failures(owners.front.log)
    finally:
        servers.stop()


@dataclass(frozen=True, kw_only=True)
class _Installation:
    """A fuzzed web process, and the credentials of its first start."""

    front: Service
    credentials: Mapping[str, Any]


@contextlib.contextmanager
def _installation(directory: Path, servers: Servers) -> Iterator[_Installation]:
    stack = Stack(directory, servers)
    try:
        credentials = stack.set_up()
        # The fuzzer guesses thousands of credentials from one address. Other tests cover the limit on failed logins.
        front = stack.web(FAILED_LOGINS_PER_MINUTE="0", A2A_WAIT_SECONDS="2")
        with stack.running(front, stack.worker("agents")):
            yield _Installation(front=front, credentials=credentials)
    finally:
        stack.kill_all()


def _fuzz_as_agent(installation: _Installation, examples: int, seed: int) -> int:
    url = installation.front.url
    return _fuzz_as(exchange_token(url, installation.credentials), url, examples, seed)


def _fuzz_as_owner_and_distribution(installation: _Installation, examples: int, seed: int) -> int:
    url, credentials = installation.front.url, installation.credentials
    failed = _fuzz_as(credentials["ownerApiKey"], url, examples, seed)
    return failed | _fuzz_as_distribution(credentials["distribution"], url, examples, seed)


def _fuzz_as_distribution(distribution: Mapping[str, str], url: str, examples: int, seed: int) -> int:
    """Fuzz the routes of distributions with a distribution's token, mostly at its own path."""
    only = ("--include-path-regex", "^/distributions/")
    environment = {DISTRIBUTION: distribution["id"]}
    return _fuzz_as(distribution["token"], url, examples, seed, *only, environment=environment)


def _fuzz_as(
    token: str,
    url: str,
    examples: int,
    seed: int,
    *more: str,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> int:
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "--config-file",
        str(HERE / "schemathesis.toml"),
    ]
    command += ["run", f"{url}/openapi.json", "--url", url, "--header", f"Authorization: Bearer {token}"]
    # HEAD has GET's handler and differs only in the body.
    command += ["--exclude-operation-id-regex", "^head_"]
    command += ["--checks", "all", "--max-examples", str(examples), "--continue-on-failure", "--no-shrink"]
    command += ["--seed", str(seed)]
    return _run([*command, *more], {"SCHEMATHESIS_HOOKS": "tests.fuzz.hooks", **environment})


def _report_failures(log: Path) -> int:
    """Print the errors that the web process logged."""
    failures = [line for line in log.read_text(errors="replace").splitlines() if '"request.failed"' in line]
    for line in failures[:5]:
        print(line)
    return int(bool(failures))


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program to its end, then print its whole output at once, because another may run at the same time."""
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    print(done.stdout.decode(errors="replace"), flush=True)
    return int(done.returncode != 0)


if __name__ == "__main__":
    main()
