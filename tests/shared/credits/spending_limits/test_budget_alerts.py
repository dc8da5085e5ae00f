"""Budget alerts are written once per share, and sent in order and signed to the organization's endpoint."""

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
from tests.support.data.identity import make_settings

__all__ = ["limits"]
HOOK = "/alerts"


@pytest.fixture
def server(server: Server) -> Server:
    server.on(HOOK, content(b""))
    return server


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The organization's notification endpoint and the messages it has received."""

    limits: Limits
    server: Server
    settings: Settings
    secret: str

    def receive_alerts(self) -> list[dict[str, Any]]:
        """Send all pending alerts; return the received messages with verified signatures."""
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
        return [(event["data"]["budgetId"], event["data"]["share"]) for event in self.receive_alerts()]


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


def test_each_share_is_notified_once_in_order_and_signed(limits: Limits, owner: Owner) -> None:
    budget = str(limits.create(100))
    for amount in (49, 1, 10, 20, 19, 1):
        limits.charge(amount)
    assert owner.shares() == [(budget, 50), (budget, 80), (budget, 100)]
    event = owner.receive_alerts()[1]
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


def test_one_call_reaching_several_shares_alerts_only_the_highest(limits: Limits, owner: Owner) -> None:
    budget = str(limits.create(100, period=Period.DAY))
    limits.calls.settle(*limits.dispatched(50), 130)
    assert owner.shares() == [(budget, 100)]
    assert owner.receive_alerts()[0]["data"]["resetsAt"].endswith("T00:00:00Z")


def test_new_period_alerts_its_shares_again(limits: Limits, owner: Owner) -> None:
    budget = limits.create(100, period=Period.DAY)
    limits.charge(60)
    limits.end_period(budget)
    limits.charge(70)
    assert owner.shares() == [(str(budget), 50), (str(budget), 50)]


def test_raised_budget_alerts_its_shares_again(limits: Limits, owner: Owner) -> None:
    budget = limits.create(100)
    limits.charge(80)
    limits.change(budget, 1000)
    limits.charge(450)
    assert owner.shares() == [(str(budget), 80), (str(budget), 50)]


def test_holds_and_rate_limits_write_no_alerts(limits: Limits, owner: Owner) -> None:
    limits.create(1, unit=Unit.REQUESTS, period=Period.MINUTE)
    limits.create(100)
    limits.hold(100)
    assert owner.receive_alerts() == []


def test_alert_without_an_endpoint_is_dropped(limits: Limits, owner: Owner) -> None:
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


def test_endpoint_answering_410_is_disabled_until_it_is_set_again(limits: Limits, owner: Owner) -> None:
    owner.server.on(HOOK, content(b"", status="410 Gone"))
    limits.create(100)
    limits.charge(50)
    owner.receive_alerts()
    with limits.calls.database.transaction() as session:
        endpoint = organization_endpoints.get_endpoint(
            session, owner.settings, actor=OPERATOR, organization_id=limits.calls.organization_id
        )
    assert endpoint.disabled_at is not None
