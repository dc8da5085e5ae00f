"""Report what the caller's own key or deployment has spent, and its remaining budgets (`GET /v1/key`)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, TextClause, select, text

from shared.credits.authorization import require_billing_organization
from shared.credits.holds import Attribution
from shared.credits.spending_limits.budgets import Budget, Unit, list_covering_budgets
from shared.credits.spending_limits.key_model_allowlist import find_caller_models
from shared.db.database import Session
from shared.identity.access.callers import Caller
from shared.identity.tables import api_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReport:
    """The amounts that a credential has spent in its organization, in µcr, and the budgets that apply to its calls.

    The report of an access token has the amounts and budgets of its deployment.
    """

    id: UUID
    label: str | None
    organization_id: UUID
    user_id: UUID | None
    identity_id: UUID | None
    deployment_id: UUID | None
    usage: int
    usage_daily: int
    usage_weekly: int
    usage_monthly: int
    models: tuple[str, ...] | None
    budgets: tuple[Budget, ...]
    expires_at: datetime | None

    @property
    def tightest(self) -> Budget | None:
        """The credit budget for all models with the smallest remaining amount, or None."""
        in_credits = [at for at in self.budgets if at.unit is Unit.CREDITS and at.model is None]
        return min(in_credits, key=lambda at: at.remaining, default=None)


def report_key(session: Session, caller: Caller) -> KeyReport:
    """Return the report of the caller's credential. Raises BillingOrganizationRequired."""
    organization_id = caller.payer_id or require_billing_organization(caller)
    at = Attribution.of(caller)
    subjects = [at.api_key_id, at.user_id, at.identity_id, at.principal_id, at.deployment_id]
    key = session.execute(select(api_keys).where(api_keys.c.id == at.api_key_id)).one_or_none()
    spender = "api_key_id" if at.api_key_id else "deployment_id"
    spent = sum_spent(session, organization_id, **{spender: getattr(at, spender)})
    return KeyReport(
        id=caller.credential_id,
        label=key and key.name,
        organization_id=organization_id,
        user_id=at.user_id,
        identity_id=at.identity_id,
        deployment_id=at.deployment_id,
        **{name: int(amount) for name, amount in spent._asdict().items()},
        models=find_caller_models(session, caller),
        budgets=tuple(
            list_covering_budgets(session, organization_id, [at for at in subjects if at is not None])
        ),
        expires_at=key and key.expires_at,
    )


def sum_spent(session: Session, organization_id: UUID, **spender: UUID) -> Row[Any]:
    """Return what a key (`api_key_id`) or a deployment (`deployment_id`) has spent, in total and per current period."""
    ((name, spender_id),) = spender.items()
    values = {"spender": str(spender_id), "organization_id": str(organization_id)}
    return session.execute(_SPENT[name], values).one()


def _spent(spender: str) -> TextClause:
    """Return the statement that sums a spender's past days, the hours of the current day, and the records since."""
    # Add three sources that do not overlap, so that the cost of the query does not grow with the number of calls.
    conditions = f"organization_id = CAST(:organization_id AS uuid) AND {spender} = CAST(:spender AS uuid)"
    return text(
        f"""
WITH mark AS MATERIALIZED (
    SELECT rolled_up_to AS at, date_trunc('day', rolled_up_to, 'UTC') AS today FROM usage_rollup
), spent AS (
    SELECT day AS at, cost FROM usage_days WHERE {conditions} AND day < (SELECT today FROM mark)
    UNION ALL
    SELECT hour, cost FROM usage_hours WHERE {conditions} AND hour >= (SELECT today FROM mark)
        AND hour < (SELECT at FROM mark)
    UNION ALL
    SELECT occurred_at, cost FROM usage_records WHERE {conditions} AND occurred_at >= (SELECT at FROM mark)
)
SELECT coalesce(sum(cost), 0) AS usage,
    coalesce(sum(cost) FILTER (WHERE at >= date_trunc('day', now(), 'UTC')), 0) AS usage_daily,
    coalesce(sum(cost) FILTER (WHERE at >= date_trunc('week', now(), 'UTC')), 0) AS usage_weekly,
    coalesce(sum(cost) FILTER (WHERE at >= date_trunc('month', now(), 'UTC')), 0) AS usage_monthly
FROM spent
"""  # noqa: S608 (columns named below)
    )


_SPENT = {name: _spent(name) for name in ("api_key_id", "deployment_id")}
