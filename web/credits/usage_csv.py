"""A report on usage as CSV (RFC 4180), for spreadsheets."""

import csv
import io
from collections.abc import Sequence

from shared.credits.amounts import format_credits
from shared.credits.reports import MAX_GROUPS, UsageGroup, UsageReport
from shared.errors import FieldError, ValidationFailed
from web.credits.schemas import UsageSumBody
from web.http.wire_types import render_instant

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_FIGURES = tuple(UsageSumBody.model_fields)


def render_usage(report: UsageReport) -> str:
    """Give a header and a row for each group.

    Raises ValidationFailed for more than MAX_GROUPS: a file does not say that something is missing from it.
    """
    if report.is_truncated:
        message = f"more than {MAX_GROUPS} rows: ask for less time, or break it down by less"
        raise ValidationFailed(errors=[FieldError(location="query", name="group_by", message=message)])
    question, written = report.question, io.StringIO()
    writer = csv.writer(written)
    writer.writerow([*(["starts_at"] if question.interval else []), *question.group_by, *_FIGURES])
    writer.writerows(_row(group) for group in report.groups)
    return written.getvalue()


def _row(group: UsageGroup) -> Sequence[object]:
    figures = UsageSumBody.figures(group.sum)
    return [
        *([render_instant(group.step)] if group.step else []),
        *map(guard_cell, group.keys),
        *(format_credits(value) if name == "cost" else value for name, value in figures.items()),
    ]


def guard_cell(value: str | None) -> str:
    """Keep spreadsheets from reading text as a formula: what begins like one gets an apostrophe."""
    text = value or ""
    return f"'{text}" if text.startswith(_FORMULA) else text
