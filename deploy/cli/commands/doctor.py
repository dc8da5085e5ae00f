"""Commands that look the installation over: what is wrong with it, and what it is at."""

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click

from deploy.cli.client.saved_logins import find_login
from deploy.cli.command_context import Progress, installation, print_json
from deploy.cli.consistency_checks import Depth, examine_content, examine_ledger
from deploy.cli.display.output import is_json_asked_for
from deploy.cli.exit_codes import Failure
from deploy.cli.health_report import Checks, Finding, State, count_processes, examine, measure_work
from deploy.cli.rest.remote_status import examine_from_afar, read_metrics
from deploy.cli.rest.rest_commands import is_remote
from shared.config.settings import Settings
from shared.db.database import Database
from shared.files.maintenance.store_audit import SAMPLE
from shared.files.stores import open_configured_store

Waiting = tuple[str, int, float]
_COLOURS = {State.OK: "green", State.MENDED: "green", State.WARNING: "yellow", State.WRONG: "red"}


@click.command(
    help="Check settings, services, store, processes and waiting work; fail if anything is wrong."
    " From afar: address, clock, readiness, credential and waiting work."
)
@click.option(
    "--deep",
    is_flag=True,
    help="Compare all stored content with the database too, read a sample of it, and prove the ledger.",
)
@click.option(
    "--repair", is_flag=True, help="Put right what --deep finds, as far as no content can be lost by it."
)
@click.option(
    "--discard-unknown",
    is_flag=True,
    help="Remove content that the database does not know. What only a newer backup of it knows is lost.",
)
@click.option(
    "--sample",
    type=click.IntRange(0),
    default=SAMPLE,
    show_default=True,
    help="Versions that --deep reads whole and compares with their digests, a GiB at the most.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="File to which --deep writes every discrepancy, a line of JSON each.",
)
@click.pass_context
def doctor(
    context: click.Context,
    *,
    deep: bool,
    repair: bool,
    discard_unknown: bool,
    sample: int,
    report: Path | None,
) -> None:
    if not deep and (repair or discard_unknown or report):
        raise click.UsageError("--repair, --discard-unknown and --report need --deep.")
    if is_remote():
        if deep:
            raise click.UsageError("--deep works beside the installation only.")
        _finish(context, list(examine_from_afar(find_login())))
        return
    with installation() as (database, settings), ExitStack() as files:
        lines = files.enter_context(report.open("w")) if report else None
        depth = Depth(
            repairs=repair,
            discards_unknown=discard_unknown,
            sample=sample,
            report=lines,
            progress=Progress().add,
        )
        found = list(examine(settings, database, _deep_checks(settings, database, depth) if deep else None))
    _finish(context, found)


def _finish(context: click.Context, found: list[Finding]) -> None:
    _print(found)
    context.exit(1 if any(finding.state is State.WRONG for finding in found) else 0)


def _deep_checks(settings: Settings, database: Database, depth: Depth) -> Checks:
    return {
        "stored content": lambda: examine_content(database, open_configured_store(settings, database), depth),
        "ledger": lambda: examine_ledger(database),
    }


def _print(found: list[Finding]) -> None:
    if is_json_asked_for():
        print_json({"findings": [asdict(finding) for finding in found]})
        return
    for finding in found:
        state = click.style(f"{finding.state:8}", fg=_COLOURS[finding.state])
        click.echo(f"{state} {finding.subject}: {finding.said}")
        if finding.remedy:
            click.echo(f"{'':8} → {finding.remedy}")


@click.command(help="List the processes of a host and the work that waits, with the age of the oldest.")
def status() -> None:
    processes, waiting = _status_from_afar() if is_remote() else _status_here()
    if is_json_asked_for():
        work = [{"work": name, "count": count, "oldestSeconds": age} for name, count, age in waiting]
        print_json({"processes": processes, "waiting": work})
        return
    _print_status(processes, waiting)


def _status_here() -> tuple[dict[str, int], list[Waiting]]:
    with installation() as (database, settings):
        processes = count_processes(settings) if settings.metrics_directory else {}
        return processes, list(measure_work(database))


def _status_from_afar() -> tuple[dict[str, int], list[Waiting]]:
    seen = read_metrics(find_login())
    if seen is None:
        raise Failure("The service does not show its metrics (PUBLIC_METRICS): ask beside the installation.")
    return seen.processes, list(seen.waiting())


def _print_status(processes: dict[str, int], waiting: list[Waiting]) -> None:
    for name, count in sorted(processes.items()):
        click.echo(f"{name:24} {count:>8}")
    for name, count, oldest_seconds in waiting:
        click.echo(f"{name:24} {count:>8}  {f'{oldest_seconds:.0f} s' if count else '':>8}")
