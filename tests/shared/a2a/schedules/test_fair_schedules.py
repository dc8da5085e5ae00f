"""Schedules of one organization that are all due at once do not delay another's."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.a2a.schedules import scheduler as running
from shared.a2a.schedules.administration import create_schedule
from shared.a2a.schedules.resources import ScheduleDraft
from shared.a2a.schedules.scheduler import Scheduler, run_due_schedules
from shared.identity.access.authorization import OPERATOR
from shared.runtime.batches import budget
from tests.shared.a2a.behaviors.agents import Agents
from tests.support.data.identity import IdentityFactory
from tests.support.data.query_plans import explain


def schedule(agents: Agents, deployment_id: UUID, *, minutes_late: int) -> UUID:
    now = datetime.now(UTC)
    draft = ScheduleDraft(
        name="round",
        cron=f"{now.minute} {now.hour} * * *",
        time_zone="UTC",
        message={"parts": [{"text": "Go"}]},
    )
    with agents.database.transaction() as session:
        made = create_schedule(session, actor=OPERATOR, deployment_id=deployment_id, draft=draft)
    agents.set(
        "UPDATE schedules SET next_at = now() - :late * interval '1 minute' WHERE id = :id",
        late=minutes_late,
        id=made.id,
    )
    return made.id


def test_an_organizations_many_due_schedules_leave_room_in_a_batch(
    agents: Agents, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "BATCH_SIZE", 5)
    identity = IdentityFactory(agents.database, agents.settings)
    busy = identity.deployment(agents.deployment.deployment.organization_id, name="busy").deployment.id
    for deployment_id in (agents.deployment.deployment.id, busy):
        for _ in range(6):
            schedule(agents, deployment_id, minutes_late=10)
    quiet = identity.deployment(identity.organization("Quiet").id).deployment.id
    wanted = schedule(agents, quiet, minutes_late=1)
    with budget(0) as given:
        assert run_due_schedules(scheduler) == 5
        assert given.is_truncated
    (row,) = agents.rows("SELECT next_at > now() AS is_done FROM schedules WHERE id = :id", id=wanted)
    assert row["is_done"]
    assert run_due_schedules(scheduler) == 8


def test_finding_some_of_each_does_not_read_what_is_due_later(agents: Agents) -> None:
    made = schedule(agents, agents.deployment.deployment.id, minutes_late=1)
    agents.set(
        "INSERT INTO schedules (id, deployment_id, name, cron, time_zone, message, missed, catch_up_limit, next_at)"
        " SELECT gen_random_uuid(), deployment_id, 'later', cron, time_zone, message, missed, catch_up_limit,"
        " now() + interval '1 day' FROM schedules, generate_series(1, 20000) WHERE id = :id",
        id=made,
    )
    with agents.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE schedules"))
    plan = explain(agents.database, running.FAIR, {"each": 2, "limit": 20})
    assert "ix_schedules_due_by_deployment" in plan.indexes
    assert plan.rows_removed == 0
    assert plan.blocks < 200
