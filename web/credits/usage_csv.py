"""Usage reports and usage records as CSV (RFC 4180) for spreadsheets."""

import csv
import io
from collections.abc import Iterable, Sequence

from shared.credits.amounts import format_credits
from shared.credits.usage.usage_records import UsageRecord
from shared.credits.usage.usage_reports import MAX_GROUPS, UsageGroup, UsageReport
from shared.errors import FieldError, ValidationFailed
from web.credits.schemas import UsageRecordBody, UsageSumBody
from web.http.wire_types import render_instant

# OWASP's list of characters that start a formula in a spreadsheet (CSV injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_FIGURES = tuple(UsageSumBody.model_fields)
_RECORD = tuple(name for name in UsageRecordBody.model_fields if name != "object")


def render_usage(report: UsageReport) -> str:
    """Return a header and a row for each group.

    Raises ValidationFailed if there are more than MAX_GROUPS groups, because a CSV file cannot show that it
    is truncated.
    """
    if report.is_truncated:
        message = f"more than {MAX_GROUPS} rows: choose a shorter time or fewer dimensions"
        raise ValidationFailed(errors=[FieldError(location="query", name="group_by", message=message)])
    criteria, written = report.criteria, io.StringIO()
    writer = csv.writer(written)
    writer.writerow([*(["starts_at"] if criteria.interval else []), *criteria.group_by, *_FIGURES])
    writer.writerows(_row(group) for group in report.groups)
    return written.getvalue()


def render_records(records: Iterable[UsageRecord]) -> str:
    """Return a header and a row for each record."""
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(_RECORD)
    # Render through the model of the JSON response, so that both formats have the same values.
    shown = (UsageRecordBody.of(record).model_dump(mode="json") for record in records)
    writer.writerows([_cell(record[name]) for name in _RECORD] for record in shown)
    return written.getvalue()


def _cell(value: object) -> object:
    return guard_cell(value) if isinstance(value, str) else value


def _row(group: UsageGroup) -> Sequence[object]:
    figures = UsageSumBody.figures(group.sum)
    return [
        *([render_instant(group.step)] if group.step else []),
        *map(guard_cell, group.keys),
        *(format_credits(value) if name == "cost" else value for name, value in figures.items()),
    ]


def guard_cell(value: str | None) -> str:
    """Return text that spreadsheets do not evaluate.

    An apostrophe is put before text that starts like a formula.
    """
    text = value or ""
    return f"'{text}" if text.startswith(_FORMULA) else text
