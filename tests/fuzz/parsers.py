"""Search with atheris, guided by coverage, for bytes that break a parser: `python -m tests.fuzz.parsers [TARGET …]`.

Each target is searched in a process of its own, from its seeds, for `--seconds`. A crash, or an input that takes
longer than `SLOW_SECONDS`, is printed and kept below the `--keep` folder; the exit code is then 1. Add a test for each
finding beside the parser's other tests.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SLOW_SECONDS = 5
LONGEST_BYTES = 4096
LIMIT_MEGABYTES = 2048
_INSTRUMENTED = ("web", "shared", "urllib.parse", "json.decoder")


def main() -> int:
    """Search each target. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.parsers", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="parsers to search (default: all)")
    parser.add_argument("--seconds", type=int, default=60, help="the time to search each target")
    parser.add_argument("--keep", type=Path, help="the folder for inputs that break a parser")
    parser.add_argument("--search", metavar="TARGET", help=argparse.SUPPRESS)
    arguments, options = parser.parse_known_args()
    if arguments.search:
        return _search(arguments.search, options)
    from tests.fuzz.parser_targets import TARGETS

    keep = arguments.keep or Path(tempfile.mkdtemp(prefix="fuzz-"))
    broken = [
        target
        for target in arguments.targets or TARGETS
        if not _holds(target, arguments.seconds, keep / target)
    ]
    print(f"parsers: {len(broken)} broken of {len(arguments.targets or TARGETS)} {broken or ''}".rstrip())
    return int(bool(broken))


def _holds(target: str, seconds: int, keep: Path) -> bool:
    """Search one target in a process. Print the number of inputs, or the failure. Return whether none was found."""
    from tests.fuzz.parser_targets import SEEDS

    corpus = keep / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[target]):
        (corpus / f"seed-{number}").write_bytes(seed)
    limits = (f"-max_total_time={seconds}", f"-timeout={SLOW_SECONDS}", f"-max_len={LONGEST_BYTES}")
    command = [sys.executable, "-m", "tests.fuzz.parsers", "--search", target, str(corpus), *limits]
    command += [f"-rss_limit_mb={LIMIT_MEGABYTES}", f"-artifact_prefix={keep}/", "-print_final_stats=1"]
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    said = run.stderr.splitlines()
    tried = next((line.split()[-1] for line in said if "number_of_executed_units" in line), "?")
    print(f"{target}: {'BROKEN' if run.returncode else 'held'} after {tried} inputs", flush=True)
    if run.returncode:
        print("\n".join(said[-40:]), run.stdout[-2000:], sep="\n", flush=True)
    return run.returncode == 0


def _search(target: str, options: Sequence[str]) -> int:
    """Search in this process, which ends with the search."""
    import atheris

    with atheris.instrument_imports(include=[*_INSTRUMENTED]):
        from tests.fuzz.parser_targets import TARGETS
    atheris.Setup([sys.argv[0], *options], TARGETS[target])
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
