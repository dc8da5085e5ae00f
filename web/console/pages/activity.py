"""The page of activity: model calls, newest first. The list can be filtered and downloaded as a CSV file."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from urllib.parse import urlencode
from uuid import UUID

from flask import Response
from pydantic import Field

from shared.credits.authorization import authorize_usage
from shared.credits.settlement import Status
from shared.credits.usage.usage_records import RecordFilter, list_all_usage_records, list_usage_records
from web.console.declarations import ConsoleRoutes
from web.console.forms import invalid_field
from web.console.navigation import Group
from web.console.page_context import PageContext
from web.console.queries import ROWS, CursorQuery, FilterText
from web.credits.csv_files import csv_file
from web.credits.usage_csv import render_records
from web.http.negotiation import CSV

routes = ConsoleRoutes("activity")

_STATUSES = tuple(status.value for status in Status)
_SPANS = {"24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}


class ActivityQuery(CursorQuery):
    """The filter of calls. A form sends an empty value for each field that the user did not choose."""

    model: FilterText = ""
    principal: FilterText = ""
    key: FilterText = ""
    status: FilterText = ""
    since: Annotated[Literal["", "24h", "7d", "30d"], Field()] = ""

    def record_filter(self, now: datetime) -> RecordFilter:
        """Return the filter of the domain. The time span ends at `now`. Raises ValidationFailed."""
        if self.status and self.status not in _STATUSES:
            raise invalid_field("status", f"must be one of {', '.join(_STATUSES)}")
        return RecordFilter(
            model=self.model or None,
            principal_id=_id("principal", self.principal),
            api_key_id=_id("key", self.key),
            status=Status(self.status) if self.status else None,
            starts_at=(now - _SPANS[self.since]).astimezone(UTC) if self.since else None,
        )

    @property
    def filters(self) -> str:
        """The query string of this filter, for the links to older calls and to the CSV file."""
        # Omit the cursor: a link sets its own cursor, and the CSV file has the calls of all pages.
        chosen = self.model_dump(exclude={"cursor"})
        return urlencode({name: value for name, value in chosen.items() if value})


@routes.page(
    "/activity",
    title="Activity",
    permission=None,
    navigation=Group.USAGE,
    summary="List calls, newest first",
    query=ActivityQuery,
)
def show_activity(context: PageContext) -> Response:
    query: ActivityQuery = context.call.query
    # The page requires no permission: each member reads their own calls, and this scope decides who reads all
    # calls.
    scope = authorize_usage(context.caller)
    with context.services.database.autocommit() as session:
        listed = list_usage_records(
            session,
            scope.organization_id,
            user_id=scope.user_id,
            wanted=query.record_filter(context.now),
            cursor=query.cursor,
            limit=ROWS,
        )
        ids = [at for record in listed.items for at in (record.principal_id, record.api_key_id)]
        labels = context.labels(session, ids)
    return context.render(
        "activity.html",
        listed=listed,
        labels=labels,
        query=query,
        models=[entry.id for entry in context.services.models.catalog.current().entries],
        statuses=_STATUSES,
        is_own=scope.user_id is not None,
    )


@routes.download(
    "/activity.csv",
    permission=None,
    summary="Get the calls as a file",
    query=ActivityQuery,
    responses={200: CSV},
)
def download_activity(context: PageContext) -> Response:
    query: ActivityQuery = context.call.query
    scope = authorize_usage(context.caller)
    with context.services.database.autocommit() as session:
        records = list_all_usage_records(session, scope, query.record_filter(context.now))
    return csv_file("activity", render_records(records))


def _id(name: str, value: str) -> UUID | None:
    try:
        return UUID(value) if value else None
    except ValueError:
        # The query does not use pydantic's Id, because an empty field of the form means no filter. So parse
        # the id here.
        raise invalid_field(name, "is not an id") from None
