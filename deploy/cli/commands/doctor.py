"""The commands `doctor` and `status`: health checks, and the running processes with their backlogs."""

from contextlib import ExitStack
from pathlib import Path

import click

from deploy.cli.client.saved_logins import find_login
from deploy.cli.command_context import Progress, installation, print_json
from deploy.cli.consistency_checks import DeepCheckOptions, check_content, check_ledger
from deploy.cli.display.output import is_json_requested
from deploy.cli.exit_codes import Failure
from deploy.cli.health_report import Checks, Finding, State, count_processes, measure_backlogs, run_checks
from deploy.cli.rest.remote_status import check_remote_service, read_service_metrics
from deploy.cli.rest.rest_commands import is_remote
from shared.config.settings import Settings
from shared.db.database import Database
from shared.files.maintenance.store_audit import SAMPLE
from shared.files.stores import open_configured_store

Backlog = tuple[str, int, float]
"""A backlog: its name, its number of rows, and the age of its oldest row in seconds."""
_COLOURS = {State.OK: "green", State.REPAIRED: "green", State.WARNING: "yellow", State.WRONG: "red"}


@click.command(
    help="Check settings, servers, blob store, models, processes and backlogs; exit with 1 if a check finds an error."
    " Over REST, check the address, clock, readiness, credential and backlogs."
)
@click.option(
    "--deep",
    is_flag=True,
    help="Also compare all stored content with the database, read a sample of it, and reconcile the ledger.",
)
@click.option(
    "--repair", is_flag=True, help="Repair what --deep finds, except where a repair could lose content."
)
@click.option(
    "--discard-unknown",
    is_flag=True,
    help="Delete content that the database does not know. Content that only a newer database backup knows is lost.",
)
@click.option(
    "--sample",
    type=click.IntRange(0),
    default=SAMPLE,
    show_default=True,
    help="Number of versions that --deep reads and compares with their digests; at most 1 GiB in total.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="File to which --deep writes each discrepancy as one line of JSON.",
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
            raise click.UsageError("--deep does not work over REST: run it on the installation's host.")
        _finish(context, list(check_remote_service(find_login())))
        return
    with installation() as (database, settings), ExitStack() as files:
        # Open the file after reading the settings: invalid settings must not truncate an earlier report.
        lines = files.enter_context(report.open("w")) if report else None
        options = DeepCheckOptions(
            repairs=repair,
            discards_unknown=discard_unknown,
            sample=sample,
            report=lines,
            progress=Progress().add,
        )
        found = list(
            run_checks(settings, database, _deep_checks(settings, database, options) if deep else None)
        )
    _finish(context, found)


def _finish(context: click.Context, found: list[Finding]) -> None:
    _print(found)
    context.exit(1 if any(finding.state is State.WRONG for finding in found) else 0)


def _deep_checks(settings: Settings, database: Database, options: DeepCheckOptions) -> Checks:
    return {
        "stored content": lambda: check_content(database, open_configured_store(settings, database), options),
        "ledger": lambda: check_ledger(database),
    }


def _print(found: list[Finding]) -> None:
    if is_json_requested():
        print_json({"findings": [_to_json(finding) for finding in found]})
        return
    for finding in found:
        state = click.style(f"{finding.state:8}", fg=_COLOURS[finding.state])
        click.echo(f"{state} {finding.subject}: {finding.detail}")
        if finding.remedy:
            click.echo(f"{'':8} → {finding.remedy}")


def _to_json(finding: Finding) -> dict[str, str | None]:
    # Keep the member name `said`, which scripts read, although the field now has another name.
    return {
        "subject": finding.subject,
        "state": finding.state,
        "said": finding.detail,
        "remedy": finding.remedy,
    }


@click.command(
    help="List the processes of a host, and the backlogs with the age of their oldest row in seconds."
)
def status() -> None:
    processes, backlogs = _remote_status() if is_remote() else _local_status()
    if is_json_requested():
        work = [{"work": name, "count": count, "oldestSeconds": age} for name, count, age in backlogs]
        print_json({"processes": processes, "waiting": work})
        return
    _print_status(processes, backlogs)


def _local_status() -> tuple[dict[str, int], list[Backlog]]:
    with installation() as (database, settings):
        # Without a shared directory no process knows the others, so report none. The database knows the backlogs.
        processes = count_processes(settings) if settings.metrics_directory else {}
        return processes, list(measure_backlogs(database))


def _remote_status() -> tuple[dict[str, int], list[Backlog]]:
    metrics = read_service_metrics(find_login())
    if metrics is None:
        raise Failure(
            "The service's metrics are not public: set PUBLIC_METRICS, or run this on the installation's host."
        )
    return metrics.processes, list(metrics.backlogs())


def _print_status(processes: dict[str, int], backlogs: list[Backlog]) -> None:
    for name, count in sorted(processes.items()):
        click.echo(f"{name:24} {count:>8}")
    for name, count, oldest_seconds in backlogs:
        click.echo(f"{name:24} {count:>8}  {f'{oldest_seconds:.0f} s' if count else '':>8}")
