"""Request and response models of credits and usage: snake_case below `/v1`, camelCase below `/admin`."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from shared.credits.balances import Balance, Policy, Suspender
from shared.credits.holds import HoldState
from shared.credits.ledger import Entered
from shared.credits.settlement import Status
from shared.credits.usage.usage_records import UsageRecord
from shared.credits.usage.usage_reports import UsageSum
from shared.pagination import DEFAULT_LIMIT, MAX_LIMIT, Page
from web.credits.amount_types import Credits, CreditsInput, SignedCreditsInput
from web.http.schemas import PageResponse, ResponseModel
from web.http.wire_types import Between, Count, Id, JsonCount, RequestModel, SnakeModel, Text, UtcTime

Limit = Annotated[Count, Between(minimum=1, maximum=MAX_LIMIT), Field(description="Items on the page.")]
PolicyName = Literal["active", "limit", "suspended"]


class CreditsBody(SnakeModel):
    """The organization's credits."""

    object: Literal["credits"] = "credits"
    balance: Credits = Field(description="All credits that are left, including held ones.")
    held: Credits = Field(description="Reserved for calls in progress.")
    available: Credits = Field(description="The amount that a call may reserve now.")
    policy: Policy
    suspended_by: Sequence[Suspender] = Field(description="Who suspended spending. Empty unless `suspended`.")
    overdraft: Credits = Field(description="How far below zero spending may take the balance.")
    spending_limit: Credits | None = Field(description="The limit for a calendar month under policy `limit`.")
    spent_this_month: Credits = Field(description="Charged in this calendar month, UTC.")
    storage_overdue_since: UtcTime | None = Field(
        description="The time since which storage could not be charged. Null if none is owed."
    )
    storage_refused_from: UtcTime | None = Field(
        description="The end of the grace period. From then on nothing more is stored until there are credits again."
    )

    @classmethod
    def of(cls, balance: Balance) -> Self:
        """Return the model of a balance."""
        return cls(
            balance=balance.balance,
            held=balance.held,
            available=balance.available,
            policy=balance.policy,
            suspended_by=balance.suspended_by,
            overdraft=balance.overdraft,
            spending_limit=balance.spending_limit,
            spent_this_month=balance.spent,
            storage_overdue_since=balance.storage_overdue_since,
            storage_refused_from=balance.storage_refused_from,
        )


class UsageSumBody(SnakeModel):
    """The consumption of some calls."""

    invocations: JsonCount
    prompt_tokens: JsonCount
    completion_tokens: JsonCount
    total_tokens: JsonCount
    cached_tokens: JsonCount = Field(description="Prompt tokens that were read from a cache.")
    cache_write_tokens: JsonCount = Field(description="Prompt tokens that were written to a cache.")
    reasoning_tokens: JsonCount = Field(description="Completion tokens of reasoning.")
    cost: Credits

    @classmethod
    def figures(cls, sums: UsageSum) -> dict[str, Any]:
        """Return the fields of a sum."""
        return {
            "invocations": sums.invocations,
            "prompt_tokens": sums.prompt_tokens,
            "completion_tokens": sums.completion_tokens,
            "total_tokens": sums.total_tokens,
            "cached_tokens": sums.cached_tokens,
            "cache_write_tokens": sums.cache_write_tokens,
            "reasoning_tokens": sums.reasoning_tokens,
            "cost": sums.cost,
        }


class UsageRecordBody(SnakeModel):
    """One call: its consumption and cost, and who is responsible."""

    object: Literal["usage.record"] = "usage.record"
    invocation_id: Id
    model: str
    provider: str | None
    status: Status
    prompt_tokens: JsonCount
    completion_tokens: JsonCount
    total_tokens: JsonCount
    cached_tokens: JsonCount
    cache_write_tokens: JsonCount
    reasoning_tokens: JsonCount
    cost: Credits
    is_estimated: bool = Field(
        description="Whether the counts are our estimate, because the provider reported none."
    )
    user_id: Id | None
    identity_id: Id | None = Field(
        description="The daemon (service account) that supplied the permissions of the call."
    )
    principal_id: Id | None = Field(description="The receiving identity, else the daemon, else the user.")
    deployment_id: Id | None
    api_key_id: Id | None = Field(description="The API key of the call.")
    distribution_id: Id | None = Field(description="The distribution that routed the call.")
    occurred_at: UtcTime
    corrected_at: UtcTime | None

    @classmethod
    def of(cls, record: UsageRecord) -> Self:
        """Return the model of a record."""
        shown = {
            name: getattr(record, name) for name in cls.model_fields if name not in ("object", "total_tokens")
        }
        # The total is computed and not stored, so it cannot differ from its summands.
        return cls(**shown, total_tokens=record.prompt_tokens + record.completion_tokens)


class UsageRecordPage(SnakeModel):
    """A page of usage records, newest first."""

    object: Literal["list"] = "list"
    data: Sequence[UsageRecordBody]
    has_more: bool
    next_cursor: Id | None

    @classmethod
    def of(cls, page: Page[UsageRecord]) -> Self:
        """Return the model of a page."""
        return cls.model_validate(
            {
                "data": [UsageRecordBody.of(record) for record in page.items],
                "has_more": page.next_cursor is not None,
                "next_cursor": page.next_cursor,
            }
        )


class OrganizationCredits(ResponseModel):
    """An organization's credits, for its administrators."""

    organization_id: Id
    balance: Credits
    held: Credits
    available: Credits
    policy: Policy
    suspended_by: Sequence[Suspender] = Field(description="Who suspended spending. Empty unless `suspended`.")
    overdraft: Credits
    spending_limit: Credits | None
    spent: Credits = Field(description="Charged in this calendar month, UTC.")
    version: JsonCount = Field(description="The number of entries.")
    storage_overdue_since: UtcTime | None = Field(
        description="The time since which storage could not be charged."
    )
    storage_refused_from: UtcTime | None = Field(
        description="The end of the grace period. From then on nothing more is stored."
    )


class EntryBody(ResponseModel):
    """One entry of the ledger. A positive amount adds credits."""

    organization_id: Id
    version: JsonCount
    kind: str
    reference: str = Field(
        description="The top-up's reference, the invocation that was charged, or the UTC day of `storage`."
    )
    amount: Credits
    balance_after: Credits
    occurred_at: UtcTime


class HoldBody(ResponseModel):
    """The credits reserved by a call in progress, and who is responsible for it."""

    id: Id = Field(description="The invocation.")
    state: HoldState = Field(description="`unresolved`: its worker was lost, and the hold will be settled.")
    hold: Credits = Field(description="The reserved amount: the most that the call may cost.")
    model: str
    provider: str | None
    user_id: Id | None
    identity_id: Id | None = Field(
        description="The daemon (service account) that supplies the permissions of the call."
    )
    principal_id: Id | None = Field(description="The receiving identity, else the daemon, else the user.")
    deployment_id: Id | None
    api_key_id: Id | None
    distribution_id: Id | None
    created_at: UtcTime
    lease_until: UtcTime = Field(description="When it is released or settled, unless its worker renews it.")


class HoldPage(PageResponse):
    """A page of open holds, newest first."""

    holds: Sequence[HoldBody]


class EnteredBody(EntryBody):
    """The entry of a top-up or an adjustment."""

    replayed: bool = Field(description="Whether an earlier request created this entry.")

    @classmethod
    def entered(cls, entered: Entered) -> Self:
        """Return the model of an entry."""
        return cls.with_secret(entered.entry, replayed=entered.is_replayed)


class EntryPage(PageResponse):
    """A page of entries, newest first."""

    # The cursor is the version of an entry, not an id.
    next_cursor: str | None  # type: ignore[assignment]
    entries: Sequence[EntryBody]


class EntryQuery(RequestModel):
    """The parameters of the list of entries."""

    cursor: Count | None = Field(default=None, description="The `nextCursor` of the previous page.")
    limit: Limit = DEFAULT_LIMIT


class NewTopUp(RequestModel):
    """Credits to add."""

    amount: CreditsInput
    reference: Annotated[str, Text(minimum=1, maximum=200)] = Field(
        description="Identifies the top-up. A repeated one adds nothing."
    )


class NewAdjustment(RequestModel):
    """Credits to add or, with a minus, to remove."""

    amount: SignedCreditsInput
    reference: Annotated[str, Text(minimum=1, maximum=200)] = Field(
        description="Identifies the adjustment. A repeated one changes nothing."
    )


class NewPolicy(RequestModel):
    """A credit policy, which replaces the current one."""

    policy: PolicyName = Field(
        description="`suspended` works like `credits/suspend`, the others like `credits/resume`."
    )
    overdraft: CreditsInput | None = Field(default=None, description="For operators. Unchanged if omitted.")
    spending_limit: CreditsInput | None = Field(
        default=None, description="With policy `limit` only: the limit for a calendar month, UTC."
    )
