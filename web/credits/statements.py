"""Routes of monthly statements of an organization's credits, as JSON or as a CSV file."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Annotated
from uuid import UUID

from flask import Response
from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from shared.credits.amounts import format_credits
from shared.credits.statements import DEFAULT_MONTHS, Statement, list_statements, read_statement
from shared.errors import ValidationFailed
from shared.pagination import MAX_LIMIT
from web.credits.amount_types import Credits
from web.credits.csv_files import FILE_HEADERS, VARIES, csv_file, json_or_file
from web.framework.administration import ORGANIZATION, AdministrationRoutes
from web.framework.calls import JsonResponse, RequestContext
from web.http.negotiation import CSV, JSON, negotiate
from web.http.schemas import PageResponse, ResponseModel
from web.http.wire_types import Between, Count, Id, JsonCount, RequestModel

routes = AdministrationRoutes("credit administration")

# Years start at 2000: no ledger is older, and the pattern stays simple.
_MONTH_PATTERN = r"^2[0-9]{3}-(?:0[1-9]|1[0-2])$"
_FINAL = "Whether the month is over, so that no more entries can follow."


def _parse_month(value: object) -> object:
    # In a response, the value is the domain's date and needs no parsing.
    if isinstance(value, date):
        return value
    if isinstance(value, str) and re.fullmatch(_MONTH_PATTERN, value, re.ASCII):
        return date.fromisoformat(f"{value}-01")
    raise PydanticCustomError("month", "must be a month such as 2026-11")


def _write_month(value: date) -> str:
    return f"{value:%Y-%m}"


Month = Annotated[
    date,
    BeforeValidator(_parse_month),
    PlainSerializer(_write_month, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _MONTH_PATTERN, "examples": ["2026-11"]}),
]


class StatementLineBody(ResponseModel):
    """The entries of one kind, and their sum."""

    kind: str
    entries: JsonCount
    amount: Credits


class StatementBody(ResponseModel):
    """A calendar month (UTC) of an organization's ledger. `opening` plus the `lines` is `closing`."""

    organization_id: Id
    month: Month
    opening: Credits
    lines: Sequence[StatementLineBody] = Field(
        description="All kinds of entries, including those without any."
    )
    closing: Credits
    is_final: bool = Field(description=_FINAL)


class StatementSummary(ResponseModel):
    """An organization's balance before and after a month."""

    month: Month
    opening: Credits
    closing: Credits
    is_final: bool = Field(description=_FINAL)


class StatementPage(PageResponse):
    """A page of months since the organization's first entry, newest first."""

    # The cursor is a month, not an id.
    next_cursor: str | None  # type: ignore[assignment]
    statements: Sequence[StatementSummary]


class StatementQuery(RequestModel):
    """The parameters of the list of statements."""

    cursor: Month | None = Field(default=None, description="The `nextCursor` of the previous page.")
    limit: Annotated[
        Count, Between(minimum=1, maximum=MAX_LIMIT), Field(description="Months on the page.")
    ] = DEFAULT_MONTHS


@routes.administers(
    "GET",
    f"{ORGANIZATION}/credits/statements",
    {200: json_or_file(StatementPage)},
    ValidationFailed,
    query=StatementQuery,
    summary="List an organization's monthly statements, newest first",
    response_headers=FILE_HEADERS,
)
def list_credit_statements(call: RequestContext, organization_id: UUID) -> JsonResponse | Response:
    actor = call.actor
    query: StatementQuery = call.query
    with call.services.database.transaction() as session:
        page = list_statements(
            session, actor=actor, organization_id=organization_id, before=query.cursor, limit=query.limit
        )
    if negotiate(call.http, (JSON, CSV)) == CSV:
        rows = (
            (_write_month(at.month), format_credits(at.opening), format_credits(at.closing))
            for at in page.items
        )
        return _file("statements", ("month", "opening", "closing"), rows)
    return JsonResponse(body=StatementPage.of(page), headers=VARIES)


@routes.administers(
    "GET",
    f"{ORGANIZATION}/credits/statements/<month:month>",
    {200: json_or_file(StatementBody)},
    summary="Get an organization's statement of a month: opening balance, entries by kind, closing balance",
    description="The statement of the current month is preliminary. A future month has none.",
    response_headers=FILE_HEADERS,
)
def get_credit_statement(call: RequestContext, organization_id: UUID, month: date) -> JsonResponse | Response:
    actor = call.actor
    with call.services.database.transaction() as session:
        statement = read_statement(session, actor=actor, organization_id=organization_id, month=month)
    if negotiate(call.http, (JSON, CSV)) == CSV:
        name = f"statement-{_write_month(month)}"
        return _file(name, ("month", "line", "entries", "amount"), _rows(statement))
    return JsonResponse(body=StatementBody.of(statement), headers=VARIES)


def _rows(statement: Statement) -> Iterable[Sequence[object]]:
    month = _write_month(statement.month)
    # Include opening and closing as rows, so that the amounts in a file can be added up.
    yield month, "opening", "", format_credits(statement.opening)
    for line in statement.lines:
        yield month, line.kind, line.entries, format_credits(line.amount)
    yield month, "closing", "", format_credits(statement.closing)


def _file(name: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(head)
    writer.writerows(rows)
    return csv_file(name, written.getvalue())
