"""Alerts of budgets: written once when a share is spent, and sent in order to the organization's endpoint, signed."""

from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import text
from standardwebhooks import Webhook

from shared.config.settings import Settings
from shared.credits.spending_limits.budget_alerts import send_budget_alerts
from shared.credits.spending_limits.budgets import Period, Unit
from shared.deliveries import organization_endpoints
from shared.deliveries.sender import Sender
from shared.encryption import Encryption
from shared.identity.access.authorization import OPERATOR
from shared.identity.errors import ResourceNotFound
from tests.shared.credits.spending_limits.test_budgets import Limits, limits
from tests.shared.egress.servers import Server, content
from tests.support.identity import make_settings

__all__ = ["limits"]
HOOK = "/alerts"


@pytest.fixture
def server(server: Server) -> Server:
    server.on(HOOK, content(b""))
    return server


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The organization's endpoint, as its owner has it."""

    limits: Limits
    server: Server
    settings: Settings
    secret: str

    def hear(self) -> list[dict[str, Any]]:
        """Send all that is to be told; give what has arrived, verified."""
        database = self.limits.calls.database
        send_budget_alerts(database)
        channel = organization_endpoints.make_channel(Encryption(self.settings))
        sender = Sender(database, self.settings, {organization_endpoints.KIND: channel})
        while sender.send_due():
            pass
        sender.close()
        webhook = Webhook(self.secret)
        return [webhook.verify(asked.body, dict(asked.headers)) for asked in self.server.asked]

    def shares(self) -> list[tuple[str, int]]:
        return [(event["data"]["budgetId"], event["data"]["share"]) for event in self.hear()]


@pytest.fixture
def owner(limits: Limits, server: Server) -> Owner:
    settings = make_settings(egress_allow_private=True, egress_allow_http=True)
    with limits.calls.database.transaction() as session:
        session.execute(text("DELETE FROM deliveries"))
        issued = organization_endpoints.set_endpoint(
            session,
            settings,
            actor=OPERATOR,
            organization_id=limits.calls.organization_id,
            url=server.url(HOOK),
        )
    return Owner(limits=limits, server=server, settings=settings, secret=issued.webhook_secret.value)


def test_each_share_is_told_once_in_order_signed(limits: Limits, owner: Owner) -> None:
    budget = str(limits.create(100))
    for amount in (49, 1, 10, 20, 19, 1):
        limits.charge(amount)
    assert owner.shares() == [(budget, 50), (budget, 80), (budget, 100)]
    event = owner.hear()[1]
    assert event["type"] == "budget.share_reached"
    assert event["data"] == {
        "budgetId": budget,
        "subjectKind": "user",
        "subjectId": str(limits.user_id),
        "model": None,
        "period": "once",
        "share": 80,
        "amount": "0.0001",
        "spent": "0.00008",
        "resetsAt": None,
    }


def test_shares_that_one_call_reaches_together_are_told_as_the_highest(limits: Limits, owner: Owner) -> None:
    budget = str(limits.create(100, period=Period.DAY))
    limits.calls.settle(*limits.dispatched(50), 130)
    assert owner.shares() == [(budget, 100)]
    assert owner.hear()[0]["data"]["resetsAt"].endswith("T00:00:00Z")


def test_a_new_period_tells_its_shares_anew(limits: Limits, owner: Owner) -> None:
    budget = limits.create(100, period=Period.DAY)
    limits.charge(60)
    limits.end_period(budget)
    limits.charge(70)
    assert owner.shares() == [(str(budget), 50), (str(budget), 50)]


def test_a_raised_amount_tells_shares_again_that_it_has_not_reached(limits: Limits, owner: Owner) -> None:
    budget = limits.create(100)
    limits.charge(80)
    limits.change(budget, 1000)
    limits.charge(450)
    assert owner.shares() == [(str(budget), 80), (str(budget), 50)]


def test_what_is_held_and_rates_tell_nothing(limits: Limits, owner: Owner) -> None:
    limits.create(1, unit=Unit.REQUESTS, period=Period.MINUTE)
    limits.create(100)
    limits.hold(100)
    assert owner.hear() == []


def test_without_an_endpoint_nothing_is_kept(limits: Limits, owner: Owner) -> None:
    limits.create(100)
    limits.charge(100)
    with limits.calls.database.transaction() as session:
        organization_endpoints.remove_organization_endpoint(
            session, actor=OPERATOR, organization_id=limits.calls.organization_id
        )
    assert send_budget_alerts(limits.calls.database) == 1
    assert send_budget_alerts(limits.calls.database) == 0
    with limits.calls.database.transaction() as session:
        assert session.execute(text("SELECT count(*) FROM deliveries")).scalar() == 0
        with pytest.raises(ResourceNotFound):
            organization_endpoints.get_endpoint(
                session, owner.settings, actor=OPERATOR, organization_id=limits.calls.organization_id
            )


def test_an_endpoint_that_wants_nothing_more_is_disabled_until_it_is_set_again(
    limits: Limits, owner: Owner
) -> None:
    owner.server.on(HOOK, content(b"", status="410 Gone"))
    limits.create(100)
    limits.charge(50)
    owner.hear()
    with limits.calls.database.transaction() as session:
        endpoint = organization_endpoints.get_endpoint(
            session, owner.settings, actor=OPERATOR, organization_id=limits.calls.organization_id
        )
    assert endpoint.disabled_at is not None
