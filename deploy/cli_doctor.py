"""Commands that look the installation over: what is wrong with it, and what it is at."""

from dataclasses import asdict

import click

from deploy.administration import installation, print_json
from deploy.doctor import Finding, State, count_processes, examine, measure_work

_COLOURS = {State.OK: "green", State.WARNING: "yellow", State.WRONG: "red"}
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command(help="Check settings, services, store, processes and waiting work; fail if anything is wrong.")
@_json
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> None:
    with installation() as (database, settings):
        found = list(examine(settings, database))
    if as_json:
        print_json({"findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            _say(finding)
    context.exit(1 if any(finding.state is State.WRONG for finding in found) else 0)


def _say(finding: Finding) -> None:
    state = click.style(f"{finding.state:8}", fg=_COLOURS[finding.state])
    click.echo(f"{state} {finding.subject}: {finding.said}")
    if finding.remedy:
        click.echo(f"{'':8} → {finding.remedy}")


@click.command(help="List the processes of this host and the work that waits, with the age of the oldest.")
@_json
def status(*, as_json: bool) -> None:
    with installation() as (database, settings):
        processes = count_processes(settings) if settings.metrics_directory else {}
        waiting = list(measure_work(database))
    if as_json:
        work = [{"work": name, "count": count, "oldestSeconds": age} for name, count, age in waiting]
        print_json({"processes": processes, "waiting": work})
        return
    for name, count in sorted(processes.items()):
        click.echo(f"{name:24} {count:>8}")
    for name, count, oldest_seconds in waiting:
        click.echo(f"{name:24} {count:>8}  {f'{oldest_seconds:.0f} s' if count else '':>8}")
