"""Every kind of discrepancy is planted by direct SQL and found; nothing is repaired."""

import logging
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import InternalError, ProgrammingError

from shared.credits.reconciliation import KINDS, LedgerCheck, reconcile
from shared.credits.storage_billing.daily_charges import charge_storage
from shared.credits.usage.rollups import roll_up_usage
from shared.observability.telemetry import LEDGER_DISCREPANCIES
from shared.runtime.batches import budget
from tests.shared.credits.calls import GIB, Calls
from tests.shared.credits.test_interleavings import ROLL_UP_ALL

BUDGET = (
    "INSERT INTO budgets (id, organization_id, subject_kind, subject_id, unit, period, amount, starts_at,"
)
PLANTED = {
    "posted": "UPDATE credit_balances SET posted = posted + 1 WHERE organization_id = :id",
    "version": "UPDATE credit_balances SET version = version + 1 WHERE organization_id = :id",
    "chain": "UPDATE ledger_entries SET balance_after = balance_after + 1 WHERE organization_id = :id AND version = 2",
    "held": "UPDATE credit_balances SET held = held + 1 WHERE organization_id = :id",
    "calls": "UPDATE credit_balances SET calls = calls + 1 WHERE organization_id = :id",
    "spent": "UPDATE credit_balances SET spent = spent - 1 WHERE organization_id = :id",
    "usage": "UPDATE usage_records SET cost = cost + 1, prompt_tokens = prompt_tokens + 1 WHERE organization_id = :id",
    "price": "UPDATE usage_records SET completion_tokens = completion_tokens + 1 WHERE organization_id = :id",
    "state": "UPDATE invocations SET state = 'voided' WHERE organization_id = :id AND state = 'settled'",
    "rollup": "UPDATE usage_hours SET cost = cost + 1 WHERE organization_id = :id",
    "storage": "UPDATE storage_days SET cost = cost + 1 WHERE organization_id = :id",
    "storage_cost": "UPDATE storage_days SET remainder = remainder + 1 WHERE organization_id = :id",
    "storage_gap": "UPDATE storage_days SET stored_bytes = 1 WHERE organization_id = :id",
    "storage_parts": "WITH mark AS (INSERT INTO storage_mark (id, measured_to, parts_to) VALUES (1, now(), now())"
    " ON CONFLICT (id) DO UPDATE SET parts_to = storage_mark.measured_to)"
    " INSERT INTO storage_days (organization_id, day, stored_bytes, byte_microseconds)"
    " VALUES (:id, '2026-01-03', 1, 1)",
    "overdue": "UPDATE credit_balances SET storage_overdue_since = now(), storage_refused_from = now()"
    " WHERE organization_id = :id",
    "limits": "UPDATE credit_balances SET limits = 1 WHERE organization_id = :id",
    "budget_held": f"{BUDGET} held) VALUES (gen_random_uuid(), :id, 'user', :id, 'credits', 'once', 1, 'epoch', 1)",
    "budget_spent": f"{BUDGET} spent) VALUES (gen_random_uuid(), :id, 'user', :id, 'credits', 'once', 1, 'epoch', 1)",
    "orphan": "DELETE FROM credit_balances WHERE organization_id = :id",
}


@pytest.fixture
def used(calls: Calls) -> Calls:
    """Return an organization with an entry of each sign, an open call, two days of storage and a rollup."""
    calls.top_up(1000)
    calls.charge(40)
    calls.hold(10)
    calls.store("2026-01-01", bytes_of_30_days=GIB // 2, price=15)
    calls.store("2026-01-02", bytes_of_30_days=GIB // 2, price=15)
    charge_storage(calls.database, grace=timedelta(days=14))
    roll_up_usage(calls.database, slack=ROLL_UP_ALL)
    assert calls.discrepancies() == []
    return calls


def plant(calls: Calls, statement: str) -> None:
    """Change rows that no function would change; a replica session of a superuser disables the triggers."""
    with calls.database.transaction() as session:
        session.execute(text("SET LOCAL session_replication_role = replica"))
        session.execute(text(statement), {"id": str(calls.organization_id)})


def test_every_kind_of_discrepancy_is_planted_here() -> None:
    assert set(PLANTED) == set(KINDS)


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_discrepancy_is_found(used: Calls, kind: str) -> None:
    plant(used, PLANTED[kind])
    with used.database.transaction() as session:
        found = {at.kind: at for at in reconcile(session) if at.organization_id == used.organization_id}
    assert kind in found
    assert found[kind].expected != found[kind].found
    assert found[kind].meaning == KINDS[kind]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE usage_hours SET api_key_id = gen_random_uuid() WHERE organization_id = :id",
        "UPDATE usage_hours SET prompt_tokens = cost - 1, cached_tokens = 1 WHERE organization_id = :id",
        "UPDATE usage_days SET distribution_id = gen_random_uuid() WHERE organization_id = :id",
        "UPDATE usage_days SET cost = cost + 1 WHERE organization_id = :id",
        "DELETE FROM usage_days WHERE organization_id = :id",
    ],
)
def test_sums_of_usage_agree_in_every_dimension_and_figure(used: Calls, change: str) -> None:
    used.run("UPDATE usage_rollup SET rolled_up_to = 'epoch'")
    used.run(
        "UPDATE usage_records SET occurred_at = now() - interval '3 days' WHERE organization_id = :id",
        id=used.organization_id,
    )
    used.run("DELETE FROM usage_hours WHERE organization_id = :id", id=used.organization_id)
    roll_up_usage(used.database, slack=ROLL_UP_ALL)
    assert used.discrepancies() == []
    plant(used, change)
    assert used.discrepancies() == ["rollup"]


def test_a_record_without_entry_and_an_entry_without_record_are_both_found(used: Calls) -> None:
    plant(used, "DELETE FROM usage_records WHERE organization_id = :id")
    assert used.discrepancies() == ["rollup", "state", "usage"]


def test_a_lost_entry_is_found(used: Calls) -> None:
    plant(used, "DELETE FROM ledger_entries WHERE organization_id = :id AND version = 1")
    assert {"chain", "posted", "version"} <= set(used.discrepancies())


def test_the_job_reports_by_log_and_metric_and_repairs_nothing(
    used: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    plant(used, PLANTED["posted"])
    before = used.balance
    with caplog.at_level(logging.WARNING):
        assert LedgerCheck().step(used.database) > 0
    lines = [line for line in caplog.records if line.getMessage() == "credits.discrepancy"]
    mine = [at for at in lines if at.fields["organization_id"] == used.organization_id]  # type: ignore[attr-defined]
    assert mine[0].fields["kind"] == "posted"  # type: ignore[attr-defined]
    assert LEDGER_DISCREPANCIES.labels("posted")._value.get() >= 1
    assert used.balance == before


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger_entries SET amount = 1 WHERE organization_id = :id",
        "DELETE FROM ledger_entries WHERE organization_id = :id",
        "TRUNCATE ledger_entries",
    ],
)
def test_entries_are_never_changed(used: Calls, change: str) -> None:
    # The service's role may not even ask for the last; the others are refused by a trigger.
    with pytest.raises((InternalError, ProgrammingError), match=r"append-only|permission denied"):
        used.run(change, id=used.organization_id)


def test_truncated_ledger_check_continues_where_it_stopped(used: Calls) -> None:
    plant(used, PLANTED["posted"])
    with used.database.autocommit() as session:
        organizations = session.execute(text("SELECT count(*) FROM credit_balances")).scalar_one()
    assert organizations > 1
    check, runs = LedgerCheck(), list[tuple[int, bool]]()
    while not runs or runs[-1][1]:
        with budget(0) as given:
            runs.append((check.step(used.database), given.is_truncated))
    assert len(runs) == organizations
    assert [found for found, _ in runs[:-1]] == [0] * (organizations - 1)
    assert runs[-1][0] > 0
