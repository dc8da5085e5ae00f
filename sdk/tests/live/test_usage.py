"""Usage reports of a running service without any model call."""

from __future__ import annotations

from decimal import Decimal
from typing import Any


def test_an_owner_reads_a_report_and_every_caller_its_own_key(owner: Any, client: Any) -> None:
    report = owner.usage.report(window="7d", group_by=["model", "principal"])
    assert (report.total.invocations, report.total.cost, report.data) == (0, Decimal(0), ())
    assert owner.usage.report(interval="day", only={"model": "scripted/echo"}).data == ()
    mine, deployments = owner.usage.key(), client.usage.key()
    assert (mine.usage, mine.deployment_id, mine.organization_id) == (
        Decimal(0),
        None,
        deployments.organization_id,
    )
    assert deployments.deployment_id is not None
