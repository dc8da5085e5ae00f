"""Request and response models of usage reports."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from shared.credits.settlement import Status
from shared.credits.usage.usage_query import Dimension, Interval
from shared.credits.usage.usage_records import RecordFilter
from shared.credits.usage.usage_reports import MAX_GROUPS, UsageCriteria, UsageGroup, UsageReport, Window
from shared.pagination import DEFAULT_LIMIT
from web.credits.schemas import Limit, UsageSumBody
from web.http.wire_types import Id, SnakeModel, SnakeRequestModel, Text, UtcTime


def comma_separated(kind: type[StrEnum], example: str) -> tuple[BeforeValidator, WithJsonSchema]:
    """Return the annotations of a comma-separated list of members of an enum. Duplicates are removed."""
    names = "|".join(kind)

    def parse(value: object) -> tuple[StrEnum, ...]:
        if not isinstance(value, str):
            return ()
        try:
            # Remove duplicates: a repeated dimension would only repeat its column.
            return tuple(dict.fromkeys(map(kind, value.split(","))))
        except ValueError:
            raise PydanticCustomError("dimensions", f"must be of {names}, separated by commas") from None

    pattern = f"^({names})(,({names}))*$"
    return BeforeValidator(parse), WithJsonSchema(
        {"type": "string", "pattern": pattern, "examples": [example]}
    )


Dimensions = Annotated[tuple[Dimension, ...], *comma_separated(Dimension, "model,principal")]
_Filter = Field(default=None, description="Only calls of this one.")


class UsageQuery(SnakeRequestModel):
    """The parameters of a usage report."""

    window: Literal["24h", "7d", "30d"] | None = Field(
        default=None, description="The time back from now: 24h, unless `from` is given."
    )
    starts_at: UtcTime | None = Field(
        default=None, alias="from", description="The start of the report, instead of a window."
    )
    ends_at: UtcTime | None = Field(
        default=None, alias="to", description="The end of the report, exclusive. Default: now."
    )
    interval: Literal["hour", "day"] | None = Field(
        default=None, description="Report a series of sums, one for each hour or day (UTC)."
    )
    group_by: Dimensions | None = Field(
        default=None, description="Dimensions of the breakdown: model, unless `interval` is given."
    )
    model: Annotated[str, Text(minimum=1, maximum=200)] | None = _Filter
    principal: Id | None = Field(
        default=None, description="Only calls of this receiving identity, else daemon, else user."
    )
    deployment: Id | None = _Filter
    user: Id | None = _Filter
    identity: Id | None = Field(
        default=None, description="Only calls that ran as this daemon (service account)."
    )
    key: Id | None = Field(default=None, description="Only calls with this API key, by its id.")
    distribution: Id | None = _Filter

    @property
    def criteria(self) -> UsageCriteria:
        """Return the domain's criteria, with its defaults."""
        has_span = self.starts_at is not None or self.ends_at is not None
        window = self.window or (None if has_span else Window.DAY)
        filters = {at: getattr(self, at.value) for at in Dimension if getattr(self, at.value) is not None}
        return UsageCriteria(
            window=Window(window) if window else None,
            starts_at=self.starts_at,
            ends_at=self.ends_at,
            interval=Interval(self.interval) if self.interval else None,
            group_by=self.group_by
            if self.group_by is not None
            # Do not group a series by model by default: it would have a row for each model and hour.
            else (() if self.interval else (Dimension.MODEL,)),
            filters=filters,
        )


class UsageRecordsQuery(SnakeRequestModel):
    """The parameters of the list of usage records."""

    starts_at: UtcTime | None = Field(default=None, alias="from", description="The first moment.")
    ends_at: UtcTime | None = Field(default=None, alias="to", description="The end of the list, exclusive.")
    model: Annotated[str, Text(minimum=1, maximum=200)] | None = _Filter
    principal: Id | None = Field(
        default=None, description="Only calls of this receiving identity, else daemon, else user."
    )
    key: Id | None = Field(default=None, description="Only calls with this API key, by its id.")
    status: Literal["completed", "failed", "cancelled", "incomplete"] | None = Field(
        default=None, description="Only calls with this outcome."
    )
    cursor: Id | None = Field(default=None, description="The `next_cursor` of the previous page.")
    limit: Limit = DEFAULT_LIMIT

    @property
    def wanted(self) -> RecordFilter:
        """Return the domain's filter."""
        return RecordFilter(
            model=self.model,
            principal_id=self.principal,
            api_key_id=self.key,
            status=Status(self.status) if self.status else None,
            starts_at=self.starts_at,
            ends_at=self.ends_at,
        )


class UsageGroupBody(UsageSumBody):
    """The consumption of calls with the same value of each dimension."""

    starts_at: UtcTime | None = Field(
        description="With `interval`: the start of the hour or day. Time outside of the report does not count."
    )
    key: str | None = Field(
        description="The value of the first dimension: a model or an id. Null for calls without one."
    )
    keys: Mapping[Dimension, str | None] = Field(description="The value of each dimension.")

    @classmethod
    def of(cls, group: UsageGroup, group_by: Sequence[Dimension]) -> Self:
        """Return the model of a group."""
        keys = dict(zip(group_by, group.keys, strict=True))
        first = group.keys[0] if group.keys else None
        return cls(starts_at=group.step, key=first, keys=keys, **cls.figures(group.sum))


class UsageBody(SnakeModel):
    """The usage in a period: in order of time if a series was requested, with the highest cost first."""

    object: Literal["usage"] = "usage"
    window: Window | None
    interval: Interval | None
    group_by: str = Field(description="The dimensions, separated by commas.")
    starts_at: UtcTime
    ends_at: UtcTime = Field(description="The end of the report, exclusive.")
    total: UsageSumBody = Field(description="The sum of all groups, including those that are cut off.")
    data: tuple[UsageGroupBody, ...] = Field(description="Hours, days and groups without calls are omitted.")
    is_truncated: bool = Field(description=f"Whether there are more than {MAX_GROUPS} groups.")

    @classmethod
    def of(cls, report: UsageReport) -> Self:
        """Return the model of a report."""
        criteria = report.criteria
        return cls(
            window=criteria.window,
            interval=criteria.interval,
            group_by=",".join(criteria.group_by),
            starts_at=report.starts_at,
            ends_at=report.ends_at,
            total=UsageSumBody(**UsageSumBody.figures(report.total)),
            data=tuple(UsageGroupBody.of(group, criteria.group_by) for group in report.groups),
            is_truncated=report.is_truncated,
        )
