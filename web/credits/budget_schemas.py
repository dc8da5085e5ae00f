"""Request and response models of budgets, of the models that a key may call, and of `GET /v1/key` (snake_case)."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from shared.credits.key_usage import KeyReport
from shared.credits.spending_limits.budgets import Budget, Period, SubjectKind, Unit, shown_amount
from shared.credits.spending_limits.key_model_allowlist import MAX_MODELS
from shared.pagination import Page
from web.credits.amount_types import Credits, CreditsInput
from web.http.schemas import PageResponse, ResponseModel
from web.http.wire_types import Id, RequestModel, SnakeModel, Text, UtcTime

ModelId = Annotated[str, Text(minimum=1, maximum=200)]
Amount = Annotated[str, Field(description="Credits, or a number of requests or tokens, in decimal digits.")]


class BudgetBody(ResponseModel):
    """A spending limit, and its use in the current period."""

    id: Id
    organization_id: Id
    subject_kind: SubjectKind
    subject_id: Id
    model: str | None = Field(description="Only calls of this model count. Null: all calls.")
    unit: Unit
    period: Period
    amount: Amount
    spent: Amount
    held: Amount = Field(description="Reserved for calls in progress.")
    remaining: Amount = Field(description="The amount that further calls may reserve.")
    resets_at: UtcTime | None = Field(description="The end of the current period. Null for `once`.")
    created_at: UtcTime

    @classmethod
    def of(cls, resource: object) -> Self:
        """Return the model of a budget."""
        assert isinstance(resource, Budget)  # noqa: S101 (the one thing shown so)
        return cls(**_fields(resource, cls.model_fields))


class BudgetPage(PageResponse):
    """A page of budgets, oldest first."""

    budgets: Sequence[BudgetBody]

    @classmethod
    def of(cls, page: Page[Budget]) -> Self:
        """Return the model of a page."""
        shown = [BudgetBody.of(budget) for budget in page.items]
        return cls.model_validate({"budgets": shown, "next_cursor": page.next_cursor})


class NewBudgetBody(RequestModel):
    """A budget to create."""

    subject_kind: Literal["api_key", "user", "identity", "deployment"] = Field(
        description="The subject of the calls. For an identity: calls that it runs and calls that it receives."
    )
    subject_id: Id
    unit: Literal["credits", "requests", "tokens"] = "credits"
    period: Literal["once", "minute", "day", "week", "month"] = Field(
        description="In UTC; weeks begin on Monday. `minute` is for requests and tokens, all others for credits."
    )
    amount: CreditsInput = Field(description="Credits, or a whole number of requests or tokens.")
    model: ModelId | None = Field(default=None, description="Only calls of this model count.")


class ChangedBudget(RequestModel):
    """A change of a budget."""

    amount: CreditsInput = Field(description="Credits, or a whole number of requests or tokens.")


class KeyModels(RequestModel):
    """The only models that a key may call."""

    # At least one model: a key that may call none is revoked instead, and a key that may call all has no
    # list.
    models: Annotated[Sequence[ModelId], Field(min_length=1, max_length=MAX_MODELS)]


class KeyModelsBody(ResponseModel):
    """The only models that a key may call in the organization."""

    models: Sequence[str]


class KeyBudgetBody(SnakeModel):
    """A budget that counts the caller's calls."""

    id: Id
    subject_kind: SubjectKind
    subject_id: Id
    model: str | None
    unit: Unit
    period: Period
    amount: Amount
    spent: Amount
    held: Amount
    remaining: Amount
    resets_at: UtcTime | None


class KeyData(SnakeModel):
    """The spending of the caller's credential in the organization, and what it has left."""

    id: Id
    label: str | None = Field(description="The key's name. Null for an access token.")
    organization_id: Id
    user_id: Id | None
    identity_id: Id | None
    deployment_id: Id | None
    usage: Credits = Field(description="Spent since records began.")
    usage_daily: Credits = Field(description="Spent on this day, UTC.")
    usage_weekly: Credits = Field(description="Spent in this week, UTC, beginning on Monday.")
    usage_monthly: Credits = Field(description="Spent in this calendar month, UTC.")
    limit: Credits | None = Field(
        default=None,
        description="The amount of the budget in credits that has the least left. Null without one.",
    )
    limit_remaining: Credits | None = Field(default=None, description="What is left of it.")
    limit_reset: Literal["daily", "weekly", "monthly"] | None = Field(
        default=None, description="When the limit resets. Null: never, or no limit."
    )
    models: Sequence[str] | None = Field(description="The only models that it may call. Null: all models.")
    budgets: Sequence[KeyBudgetBody]
    expires_at: UtcTime | None


class KeyBody(SnakeModel):
    """The caller's own key."""

    data: KeyData

    @classmethod
    def of(cls, report: KeyReport) -> Self:
        """Return the model of a report."""
        names = KeyData.model_fields
        shown: dict[str, Any] = {name: getattr(report, name) for name in names if hasattr(report, name)}
        shown["budgets"] = [_fields(budget, KeyBudgetBody.model_fields) for budget in report.budgets]
        # `limit` names one amount, so use the amount of the budget that will stop the caller first.
        if (tightest := report.tightest) is not None:
            shown["limit"], shown["limit_remaining"] = tightest.amount, tightest.remaining
            shown["limit_reset"] = _RESETS.get(tightest.period)
        return cls.model_validate({"data": shown})


_RESETS = {Period.DAY: "daily", Period.WEEK: "weekly", Period.MONTH: "monthly"}
_AMOUNTS = ("amount", "spent", "held", "remaining")


def _fields(budget: Budget, names: Iterable[str]) -> dict[str, Any]:
    """Return the given fields of a budget. Amounts are in the budget's unit."""
    shown = {name: getattr(budget, name) for name in names}
    # Format the amounts by unit: credits have decimals, and requests and tokens are whole numbers.
    return shown | {name: shown_amount(budget.unit, shown[name]) for name in _AMOUNTS}
