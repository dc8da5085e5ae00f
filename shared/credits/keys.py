"""Tell a caller what its own key has spent, and what is left to it."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select, text

from shared.credits.budgets import Budget, Unit, covering_budgets
from shared.credits.errors import BillingOrganizationRequired
from shared.credits.holds import Attribution
from shared.credits.key_models import find_key_models
from shared.database import Session
from shared.identity.callers import Caller
from shared.identity.tables import api_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReport:
    """What a credential has spent in its organization, in µcr, and the budgets that its calls count in.

    What an access token has spent is its deployment's.
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
        """The budget in credits, of all models, with the least left."""
        in_credits = [at for at in self.budgets if at.unit is Unit.CREDITS and at.model is None]
        return min(in_credits, key=lambda at: at.remaining, default=None)


def report_key(session: Session, caller: Caller) -> KeyReport:
    """Report on the credential of a caller. Raises BillingOrganizationRequired."""
    organization_id = caller.payer_id or caller.organization_id
    if organization_id is None:
        raise BillingOrganizationRequired
    at = Attribution.of(caller)
    subjects = [at.api_key_id, at.user_id, at.identity_id, at.principal_id, at.deployment_id]
    key = session.execute(select(api_keys).where(api_keys.c.id == at.api_key_id)).one_or_none()
    spender = {
        "api_key_id": at.api_key_id,
        "deployment_id": at.deployment_id,
        "organization_id": organization_id,
    }
    spent = session.execute(_SPENT, {name: value and str(value) for name, value in spender.items()}).one()
    return KeyReport(
        id=caller.credential_id,
        label=key and key.name,
        organization_id=organization_id,
        user_id=at.user_id,
        identity_id=at.identity_id,
        deployment_id=at.deployment_id,
        **{name: int(amount) for name, amount in spent._asdict().items()},
        models=find_key_models(session, organization_id, at.api_key_id) if at.api_key_id else None,
        budgets=tuple(covering_budgets(session, organization_id, [at for at in subjects if at is not None])),
        expires_at=key and key.expires_at,
    )


# The hours that are summed, and the records since: as the reports (`reports.py`).
_SPENT = text(
    """
WITH mark AS (SELECT rolled_up_to AS at FROM usage_rollup),
spent AS (
    SELECT hour AS at, cost FROM usage_hours, mark
    WHERE organization_id = CAST(:organization_id AS uuid) AND hour < mark.at
        AND (api_key_id = CAST(:api_key_id AS uuid) OR deployment_id = CAST(:deployment_id AS uuid))
    UNION ALL
    SELECT occurred_at, cost FROM usage_records, mark
    WHERE organization_id = CAST(:organization_id AS uuid) AND occurred_at >= mark.at
        AND (api_key_id = CAST(:api_key_id AS uuid) OR deployment_id = CAST(:deployment_id AS uuid))
)
SELECT coalesce(sum(cost), 0) AS usage,
    coalesce(sum(cost) FILTER (WHERE at >= date_trunc('day', now(), 'UTC')), 0) AS usage_daily,
    coalesce(sum(cost) FILTER (WHERE at >= date_trunc('week', now(), 'UTC')), 0) AS usage_weekly,
    coalesce(sum(cost) FILTER (WHERE at >= date_trunc('month', now(), 'UTC')), 0) AS usage_monthly
FROM spent
"""
)
