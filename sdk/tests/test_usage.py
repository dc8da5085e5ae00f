"""Usage reports and the usage of a key: requests, and parsing of responses."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from quartermaster import errors
from sdk.tests.forms import Connect
from sdk.tests.scripted_service import Answer, ScriptedService, in_turn

SUM = {
    "invocations": 2,
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "cached_tokens": 1,
    "cache_write_tokens": 0,
    "reasoning_tokens": 3,
    "cost": "0.000015",
}
START = "2026-11-01T00:00:00Z"
REPORT = {
    "object": "usage",
    "window": None,
    "interval": "day",
    "group_by": "model",
    "starts_at": START,
    "ends_at": "2026-11-02T00:00:00Z",
    "total": SUM,
    "data": [SUM | {"starts_at": START, "key": "acme/one", "keys": {"model": "acme/one"}}],
    "is_truncated": False,
}


def key_body(**changes: Any) -> dict[str, Any]:
    nobody = dict.fromkeys(("user_id", "identity_id", "deployment_id", "models", "expires_at"))
    limit = dict.fromkeys(("limit", "limit_remaining", "limit_reset"))
    spent = dict.fromkeys(("usage", "usage_daily", "usage_weekly", "usage_monthly"), "0.25")
    known = {"id": str(uuid4()), "label": "mine", "organization_id": str(uuid4()), "budgets": []}
    return {"data": {**nobody, **limit, **spent, **known, **changes}}


def test_usage_report_request_has_wire_names_and_exact_amounts(
    service: ScriptedService, connect: Connect
) -> None:
    service.script = in_turn(Answer(200, REPORT))
    start = datetime(2026, 11, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    report = connect(**service.key).usage.report(
        starts_at=start,
        ends_at=start + timedelta(days=1),
        interval="day",
        group_by=["model", "principal"],
        only={"model": "acme/one"},
    )
    assert (service.requests[-1].path, dict(service.requests[-1].query)) == (
        "/v1/usage",
        {
            "from": START,
            "to": "2026-11-02T00:00:00Z",
            "interval": "day",
            "group_by": "model,principal",
            "model": "acme/one",
        },
    )
    (group,) = report.data
    assert (group.starts_at, group.keys, group.cost) == (
        datetime(2026, 11, 1, tzinfo=timezone.utc),
        {"model": "acme/one"},
        Decimal("0.000015"),
    )
    assert (report.total.reasoning_tokens, report.is_truncated) == (3, False)


def test_nothing_is_asked_for_that_was_not_said(service: ScriptedService, connect: Connect) -> None:
    service.script = in_turn(Answer(200, REPORT))
    connect(**service.key).usage.report()
    assert dict(service.requests[-1].query) == {}


def test_a_time_without_a_zone_is_refused(service: ScriptedService, connect: Connect) -> None:
    with pytest.raises(ValueError, match="time zone"):
        connect(**service.key).usage.report(starts_at=datetime(2026, 11, 1))  # noqa: DTZ001
    assert service.requests == []


def test_a_key_says_what_it_has_spent_and_has_left(service: ScriptedService, connect: Connect) -> None:
    budget = {
        "id": str(uuid4()),
        "subject_kind": "api_key",
        "subject_id": str(uuid4()),
        "model": None,
        "unit": "credits",
        "period": "day",
        "amount": "1",
        "spent": "0.25",
        "held": "0",
        "remaining": "0.75",
        "resets_at": START,
    }
    body = key_body(
        limit="1", limit_remaining="0.75", limit_reset="daily", models=["acme/one"], budgets=[budget]
    )
    service.script = in_turn(Answer(200, body))
    own = connect(**service.key).usage.key()
    assert service.requests[-1].path == "/v1/key"
    assert (own.usage_daily, own.limit_remaining, own.models) == (
        Decimal("0.25"),
        Decimal("0.75"),
        ("acme/one",),
    )
    assert (own.budgets[0].remaining, str(own.budgets[0].id)) == (Decimal("0.75"), budget["id"])
    assert own.deployment_id is None


def test_a_refusal_in_the_dialect_of_models_is_raised_with_its_code(
    service: ScriptedService, connect: Connect
) -> None:
    refusal = {"error": {"message": "Select one.", "type": "invalid_request_error", "param": None}}
    refusal["error"]["code"] = "billing_organization_required"
    service.script = in_turn(Answer(400, refusal, {"X-Should-Retry": "false"}))
    with pytest.raises(errors.ApiError) as raised:
        connect(**service.key).usage.key()
    assert (raised.value.status, raised.value.code) == (400, "billing_organization_required")
