"""The JSON of reports on usage, and the parameters that ask for one."""

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


def several(kind: type[StrEnum], example: str) -> tuple[BeforeValidator, WithJsonSchema]:
    """Read names of a kind with commas between them; one that is named twice counts once."""
    names = "|".join(kind)

    def parse(value: object) -> tuple[StrEnum, ...]:
        if not isinstance(value, str):
            return ()
        try:
            return tuple(dict.fromkeys(map(kind, value.split(","))))
        except ValueError:
            raise PydanticCustomError("dimensions", f"must be of {names}, with commas between them") from None

    pattern = f"^({names})(,({names}))*$"
    return BeforeValidator(parse), WithJsonSchema(
        {"type": "string", "pattern": pattern, "examples": [example]}
    )


Dimensions = Annotated[tuple[Dimension, ...], *several(Dimension, "model,principal")]
_Filter = Field(default=None, description="Keep the calls of this one.")


class UsageQuery(SnakeRequestModel):
    """The parameters of a report."""

    window: Literal["24h", "7d", "30d"] | None = Field(
        default=None, description="How far back from now: 24h, unless `from` is given."
    )
    starts_at: UtcTime | None = Field(
        default=None, alias="from", description="The first moment; instead of a window."
    )
    ends_at: UtcTime | None = Field(
        default=None, alias="to", description="The moment after the last; now if left out."
    )
    interval: Literal["hour", "day"] | None = Field(
        default=None, description="Make a series of sums, each of an hour or a day (UTC)."
    )
    group_by: Dimensions | None = Field(
        default=None, description="By what the sums are broken down: model, unless `interval` is given."
    )
    model: Annotated[str, Text(minimum=1, maximum=200)] | None = _Filter
    principal: Id | None = Field(
        default=None, description="Keep calls of this receiving identity, else daemon, else user."
    )
    deployment: Id | None = _Filter
    user: Id | None = _Filter
    identity: Id | None = Field(default=None, description="Keep the calls that ran as this daemon.")
    key: Id | None = Field(default=None, description="Keep the calls made with this API key, by its id.")
    distribution: Id | None = _Filter

    @property
    def criteria(self) -> UsageCriteria:
        """What is asked, with the defaults."""
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
            else (() if self.interval else (Dimension.MODEL,)),
            filters=filters,
        )


class UsageRecordsQuery(SnakeRequestModel):
    """The parameters of a listing of records."""

    starts_at: UtcTime | None = Field(default=None, alias="from", description="The first moment.")
    ends_at: UtcTime | None = Field(default=None, alias="to", description="The moment after the last.")
    model: Annotated[str, Text(minimum=1, maximum=200)] | None = _Filter
    principal: Id | None = Field(
        default=None, description="Keep calls of this receiving identity, else daemon, else user."
    )
    key: Id | None = Field(default=None, description="Keep the calls made with this API key, by its id.")
    status: Literal["completed", "failed", "cancelled", "incomplete"] | None = Field(
        default=None, description="Keep the calls that ended so."
    )
    cursor: Id | None = Field(default=None, description="The `next_cursor` of the page before.")
    limit: Limit = DEFAULT_LIMIT

    @property
    def wanted(self) -> RecordFilter:
        """Say it to the domain."""
        return RecordFilter(
            model=self.model,
            principal_id=self.principal,
            api_key_id=self.key,
            status=Status(self.status) if self.status else None,
            starts_at=self.starts_at,
            ends_at=self.ends_at,
        )


class UsageGroupBody(UsageSumBody):
    """What the calls of one model, principal and so on consumed."""

    starts_at: UtcTime | None = Field(
        description="With `interval`: when the hour or day begins; what it has outside of the report is left out."
    )
    key: str | None = Field(
        description="The value of the first dimension: a model or an id; null for calls that have none."
    )
    keys: Mapping[Dimension, str | None] = Field(description="The value of each dimension.")

    @classmethod
    def of(cls, group: UsageGroup, group_by: Sequence[Dimension]) -> Self:
        """Show a group."""
        keys = dict(zip(group_by, group.keys, strict=True))
        first = group.keys[0] if group.keys else None
        return cls(starts_at=group.step, key=first, keys=keys, **cls.figures(group.sum))


class UsageBody(SnakeModel):
    """The usage of a span of time: step by step if a series was asked for, and the dearest groups first."""

    object: Literal["usage"] = "usage"
    window: Window | None
    interval: Interval | None
    group_by: str = Field(description="The dimensions, with commas between them.")
    starts_at: UtcTime
    ends_at: UtcTime = Field(description="The moment after the last.")
    total: UsageSumBody = Field(description="The sum of all groups, those too that are cut off.")
    data: tuple[UsageGroupBody, ...] = Field(description="Hours, days and groups without calls are left out.")
    is_truncated: bool = Field(description=f"Whether there are more than {MAX_GROUPS} groups.")

    @classmethod
    def of(cls, report: UsageReport) -> Self:
        """Show a report."""
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
