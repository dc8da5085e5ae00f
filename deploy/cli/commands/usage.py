"""Commands for usage: an organization's sums, by any dimensions, and its records, as the HTTP API gives them."""

from datetime import datetime
from typing import Any
from uuid import UUID

import click

from deploy.cli.command_context import (
    INSTANT,
    administration,
    choice,
    document,
    document_of,
    in_utc,
    limited,
    organization,
    print_json,
)
from shared.credits.amounts import format_credits
from shared.credits.settlement import Status
from shared.credits.usage.usage_query import Dimension, Interval
from shared.credits.usage.usage_records import RecordFilter, read_usage_records
from shared.credits.usage.usage_reports import UsageCriteria, UsageSum, Window, read_usage
from shared.identity.access.authorization import OPERATOR


@click.command(
    help="Get what an organization's calls consumed and cost, by any dimensions, in all or by hour or day."
)
@organization
@click.option("--window", type=choice(Window), help="How far back from now; 24h unless --from is given.")
@click.option("--from", "starts_at", type=INSTANT, help="The first moment, in UTC; instead of a window.")
@click.option("--to", "ends_at", type=INSTANT, help="The moment after the last; now if left out.")
@click.option("--interval", type=choice(Interval), help="Make a series.")
@click.option("--group-by", type=choice(Dimension), multiple=True, help="May be given several times.")
@click.option(
    "--only",
    type=(choice(Dimension), str),
    multiple=True,
    help="Keep the calls of one value, as `--only key ID`.",
)
def usage(
    organization_id: UUID,
    window: str | None,
    starts_at: datetime | None,
    ends_at: datetime | None,
    interval: str | None,
    group_by: tuple[str, ...],
    only: tuple[tuple[str, str], ...],
) -> None:
    has_span = starts_at is not None or ends_at is not None
    criteria = UsageCriteria(
        window=Window(window) if window else None if has_span else Window.DAY,
        starts_at=in_utc(starts_at),
        ends_at=in_utc(ends_at),
        interval=Interval(interval) if interval else None,
        group_by=tuple(dict.fromkeys(map(Dimension, group_by))),
        filters={Dimension(name): _value(name, value) for name, value in only},
    )
    with administration() as session:
        report = read_usage(session, actor=OPERATOR, organization_id=organization_id, criteria=criteria)
    span = {"starts_at": report.starts_at, "ends_at": report.ends_at}
    groups = [
        {"starts_at": group.step, "keys": dict(zip(criteria.group_by, group.keys, strict=True))}
        | _figures(group.sum)
        for group in report.groups
    ]
    print_json(
        document_of(
            span | {"total": _figures(report.total), "groups": groups, "is_truncated": report.is_truncated}
        )
    )


usage_records = click.Group("usage-records", help="Manage what is recorded of each model call.")


@usage_records.command("list", help="List an organization's usage records, newest first.")
@organization
@click.option("--model", help="Keep the calls of this one.")
@click.option(
    "--principal", "principal_id", type=click.UUID, help="Receiving identity, else daemon, else user."
)
@click.option(
    "--key", "api_key_id", type=click.UUID, help="Keep the calls made with this API key, by its id."
)
@click.option("--status", type=choice(Status), help="Keep the calls that ended so.")
@click.option("--from", "starts_at", type=INSTANT, help="The first moment, in UTC.")
@click.option("--to", "ends_at", type=INSTANT, help="The moment after the last.")
@click.option("--cursor", type=click.UUID, help="The nextCursor of the page before.")
@limited()
def list_records(organization_id: UUID, cursor: UUID | None, limit: int, **filters: Any) -> None:
    wanted = RecordFilter(
        **filters
        | {
            "status": Status(filters["status"]) if filters["status"] else None,
            "starts_at": in_utc(filters["starts_at"]),
            "ends_at": in_utc(filters["ends_at"]),
        }
    )
    with administration() as session:
        page = read_usage_records(
            session,
            actor=OPERATOR,
            organization_id=organization_id,
            wanted=wanted,
            cursor=cursor,
            limit=limit,
        )
    shown = [document(record) | {"cost": format_credits(record.cost)} for record in page.items]
    print_json({"usageRecords": shown, "nextCursor": page.next_cursor})


def _value(name: str, value: str) -> str | UUID:
    try:
        return value if name == Dimension.MODEL else UUID(value)
    except ValueError:
        raise click.BadParameter(f"{value} is not the id of a {name}", param_hint="--only") from None


def _figures(sums: UsageSum) -> dict[str, Any]:
    return {**document(sums), "cost": format_credits(sums.cost)}
