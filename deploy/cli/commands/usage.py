"""The commands `usage`, which prints sums of model calls, and `usage-records`, which prints one record per call."""

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
    limit_option,
    organization_option,
    print_json,
)
from shared.credits.amounts import format_credits
from shared.credits.settlement import Status
from shared.credits.usage.usage_query import Dimension, Interval
from shared.credits.usage.usage_records import RecordFilter, read_usage_records
from shared.credits.usage.usage_reports import UsageCriteria, UsageSum, Window, read_usage
from shared.identity.access.authorization import OPERATOR


@click.command(
    help="Get the tokens and credits of an organization's model calls, grouped by dimensions, by hour or by day."
)
@organization_option
@click.option(
    "--window", type=choice(Window), help="Time span until now; 24h unless --from or --to is given."
)
@click.option(
    "--from", "starts_at", type=INSTANT, help="Start in UTC, inclusive, for example 2030-01-31T12:00:00Z."
)
@click.option("--to", "ends_at", type=INSTANT, help="End in UTC, exclusive; now by default.")
@click.option("--interval", type=choice(Interval), help="Return a time series with this step.")
@click.option("--group-by", type=choice(Dimension), multiple=True, help="Dimension to group by; repeatable.")
@click.option(
    "--only",
    type=(choice(Dimension), str),
    multiple=True,
    help="Only calls with this value of a dimension, for example `--only key ID`; repeatable.",
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
    # Supply a window of a day if none is set: the domain requires a window or a start.
    criteria = UsageCriteria(
        window=Window(window) if window else None if has_span else Window.DAY,
        starts_at=in_utc(starts_at),
        ends_at=in_utc(ends_at),
        interval=Interval(interval) if interval else None,
        # Remove repeated dimensions. fromkeys() keeps the order, which is the order of the keys in each group.
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


usage_records = click.Group("usage-records", help="List the usage records of model calls.")


@usage_records.command("list", help="List an organization's usage records, newest first.")
@organization_option
@click.option("--model", help="Only calls of this model.")
@click.option(
    "--principal",
    "principal_id",
    type=click.UUID,
    help="Only calls of this principal: receiving identity, else Daemon Identity, else user.",
)
@click.option("--key", "api_key_id", type=click.UUID, help="Only calls with this API key (its id).")
@click.option("--status", type=choice(Status), help="Only calls with this status.")
@click.option(
    "--from", "starts_at", type=INSTANT, help="Start in UTC, inclusive, for example 2030-01-31T12:00:00Z."
)
@click.option("--to", "ends_at", type=INSTANT, help="End in UTC, exclusive; now by default.")
@click.option("--cursor", type=click.UUID, help="`nextCursor` of the previous page.")
@limit_option()
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
        # Models are identified by name. All other dimensions have ids, so check that the value is a UUID.
        return value if name == Dimension.MODEL else UUID(value)
    except ValueError:
        raise click.BadParameter(f"{value} is not the id of a {name}", param_hint="--only") from None


def _figures(sums: UsageSum) -> dict[str, Any]:
    return {**document(sums), "cost": format_credits(sums.cost)}
