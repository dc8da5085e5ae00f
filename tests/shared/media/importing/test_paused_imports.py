"""Paused imports: no import is lost for a cause that an administrator can fix, and each can be retried."""

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from shared.config.settings import Settings
from shared.credits.ledger import top_up
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.deployments import disable_deployment, enable_deployment
from shared.ids import least_id, new_id
from shared.media.errors import ImportNotFound, ImportNotRetryable, TooManyImports
from shared.media.importing import paused_imports
from shared.media.importing.claims import purge_imports
from shared.media.importing.imports import Import, ImportState
from shared.media.importing.paused_imports import BATCH_SIZE, resume_paused
from shared.media.importing.retries import retry_import, retry_imports
from tests.shared.media.conftest import Desk, Mailbox, attachment
from tests.support.data.identity import make_settings
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import content, status


def retry(desk: Desk, failed: Import, settings: Settings | None = None) -> Import:
    with desk.database.transaction() as session:
        return retry_import(
            session,
            settings or desk.fetcher.settings,
            actor=OPERATOR,
            distribution_id=failed.distribution_id,
            import_id=failed.id,
        )


def fail(desk: Desk, mailbox: Mailbox, path: str = "/gone") -> Import:
    (queued,) = desk.push(mailbox, attachment(desk.source.serve(path, status(410))))
    desk.work()
    failed = desk.read(queued)
    assert (failed.state, failed.code) == (ImportState.FAILED, "media_gone")
    return failed


def test_what_a_disabled_deployment_held_up_is_stored_once_it_is_enabled(desk: Desk) -> None:
    mailbox, other = desk.mailbox(), desk.mailbox()
    deployment_id = mailbox.deployment.deployment.id
    (queued,) = desk.push(mailbox, attachment(desk.source.serve("/late", content(PNG.content))))
    with desk.database.transaction() as session:
        disable_deployment(session, actor=OPERATOR, deployment_id=deployment_id)
    desk.work()
    held = desk.read(queued)
    assert (held.state, held.code, held.attempts) == (ImportState.HELD, "target_disabled", 0)
    assert desk.source.count("/late") == 0
    assert resume_paused(desk.database) == 0
    desk.push(other, attachment(desk.source.serve("/other", content(PNG.content))))
    assert desk.work() == 1
    with desk.database.transaction() as session:
        enable_deployment(session, actor=OPERATOR, deployment_id=deployment_id)
    assert resume_paused(desk.database) == 1
    desk.work()
    assert desk.read(queued).state is ImportState.STORED
    assert len(desk.files_of(mailbox)) == 1


def test_import_that_stays_paused_fails_when_records_expire(desk: Desk) -> None:
    mailbox = desk.mailbox()
    (queued,) = desk.push(mailbox, attachment(desk.source.serve("/never", content(PNG.content))))
    with desk.database.transaction() as session:
        disable_deployment(session, actor=OPERATOR, deployment_id=mailbox.deployment.deployment.id)
    desk.work()
    desk.sql(
        "UPDATE media_imports SET due_at = now(), created_at = now() - make_interval(days => :days)",
        days=desk.fetcher.settings.media_record_days,
    )
    assert resume_paused(desk.database) == 1
    desk.work()
    assert (desk.read(queued).state, desk.read(queued).code) == (ImportState.FAILED, "target_disabled")


def test_a_failed_import_is_fetched_again_under_its_id(desk: Desk, mailbox: Mailbox) -> None:
    failed = fail(desk, mailbox, "/back")
    desk.source.serve("/back", content(PNG.content))
    retried = retry(desk, failed)
    assert (retried.id, retried.state, retried.spent_attempts) == (failed.id, ImportState.QUEUED, 0)
    assert retried.ended_at is None
    desk.work()
    stored = desk.read(failed)
    assert stored.state is ImportState.STORED
    assert desk.content_of(stored) == PNG.content
    (audited,) = desk.sql(
        "SELECT * FROM audit_events WHERE action = 'media_import.retried' AND resource_id = CAST(:id AS text)",
        id=mailbox.id,
    )
    assert audited.details["import_id"] == str(failed.id)
    with pytest.raises(ImportNotRetryable):
        retry(desk, failed)


def test_an_attempt_given_up_before_a_retry_changes_nothing_after_it(desk: Desk, mailbox: Mailbox) -> None:
    failed = fail(desk, mailbox)
    retry(desk, failed)
    desk.work()
    again = desk.read(failed)
    # The number of an attempt, by which a worker proves that it has the import, never comes twice.
    assert again.attempts == failed.attempts + 1
    assert again.spent_attempts == 1


def test_what_is_under_way_elsewhere_or_forgotten_is_not_retried(desk: Desk, mailbox: Mailbox) -> None:
    (queued,) = desk.push(mailbox, attachment(desk.source.serve("/x", content(PNG.content))))
    with pytest.raises(ImportNotRetryable):
        retry(desk, queued)
    failed = fail(desk, desk.mailbox())
    elsewhere = desk.mailbox()
    with desk.database.transaction() as session, pytest.raises(ImportNotFound):
        retry_import(
            session,
            desk.fetcher.settings,
            actor=OPERATOR,
            distribution_id=elsewhere.id,
            import_id=failed.id,
        )
    desk.sql("UPDATE media_imports SET forget_at = now() WHERE id = :id", id=failed.id)
    purge_imports(desk.database)
    with pytest.raises(ImportNotFound):
        retry(desk, failed)


def test_what_failed_is_retried_by_state_code_and_time_within_bounds(desk: Desk) -> None:
    mailbox, other = desk.mailbox(), desk.mailbox()
    failed = [fail(desk, mailbox, f"/gone/{uuid4()}") for _ in range(3)]
    fail(desk, other)
    desk.sql("UPDATE media_imports SET code = 'media_too_large' WHERE id = :id", id=failed[0].id)

    def retry_all(**wanted: object) -> int:
        settings = make_settings(queued_imports=wanted.pop("queued_imports", 1000))
        with desk.database.transaction() as session:
            return retry_imports(session, settings, actor=OPERATOR, distribution_id=mailbox.id, **wanted)  # type: ignore[arg-type]

    assert retry_all(state=ImportState.HELD) == 0
    assert retry_all(code="media_too_large") == 1
    assert retry_all(since=failed[2].created_at) == 1
    with pytest.raises(TooManyImports):
        retry_all(queued_imports=2)
    assert retry_all() == 1
    assert [desk.read(one).state for one in failed] == [ImportState.QUEUED] * 3
    assert desk.sql("SELECT count(*) FROM media_imports WHERE state = 'Failed'") == [(1,)]


def test_many_held_imports_are_queued_in_batches(desk: Desk) -> None:
    mailbox = desk.mailbox()
    (queued,) = desk.push(mailbox, attachment(desk.source.serve("/many", content(PNG.content))))
    desk.sql(
        "UPDATE media_imports SET state = 'Held', code = 'insufficient_credits', due_at = now() + interval '1 h'"
    )
    columns = (
        "distribution_id, organization_id, network, message_id, location, request_hash, state, code, due_at"
    )
    desk.sql(
        f"INSERT INTO media_imports (id, attachment_id, {columns})"
        f" SELECT gen_random_uuid(), 'n' || n, {columns} FROM media_imports, generate_series(1, :more) AS n"
        " WHERE id = :id",
        more=BATCH_SIZE,
        id=queued.id,
    )
    assert resume_paused(desk.database) == BATCH_SIZE
    assert resume_paused(desk.database) == 1


def hold_all(desk: Desk, mailbox: Mailbox, count: int, *, due_in: str) -> None:
    """Pause this many imports of a distribution until a time."""
    (first,) = desk.push(mailbox, attachment(desk.source.serve("/held", content(PNG.content))))
    columns = "distribution_id, organization_id, network, message_id, location, request_hash, state"
    desk.sql(
        f"INSERT INTO media_imports (id, attachment_id, {columns}) SELECT gen_random_uuid(), 'n' || n, {columns}"
        " FROM media_imports, generate_series(2, :count) AS n WHERE id = :id",
        count=count,
        id=first.id,
    )
    desk.sql(
        "UPDATE media_imports SET state = 'Held', code = 'insufficient_credits', is_ready = false,"
        " due_at = now() + CAST(:due_in AS interval) WHERE distribution_id = :id",
        due_in=due_in,
        id=mailbox.id,
    )


def count_queued(desk: Desk, mailbox: Mailbox) -> int:
    ((count,),) = desk.sql(
        "SELECT count(*) FROM media_imports WHERE state = 'Queued' AND distribution_id = :id", id=mailbox.id
    )
    return int(count)


@pytest.fixture
def acts_are_past(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Move the audit events of before a call into the past."""

    def forget() -> None:
        now = least_id(datetime.now(UTC)).int >> 80
        monkeypatch.setattr(paused_imports, "least_id", lambda _: UUID(int=now + 1 << 80))
        while new_id().int >> 80 <= now:
            pass

    return forget


def test_one_organizations_held_imports_do_not_keep_anothers_waiting(
    desk: Desk, acts_are_past: Callable[[], None]
) -> None:
    crowd, lone = desk.mailbox(), desk.mailbox()
    hold_all(desk, crowd, 2 * BATCH_SIZE, due_in="-1 h")
    hold_all(desk, lone, 1, due_in="-1 min")
    acts_are_past()
    assert resume_paused(desk.database) == BATCH_SIZE
    assert count_queued(desk, lone) == 1


def test_only_organizations_in_which_something_was_done_are_looked_at(
    desk: Desk, acts_are_past: Callable[[], None]
) -> None:
    changed, idle = desk.mailbox(), desk.mailbox()
    for mailbox in (changed, idle):
        hold_all(desk, mailbox, 2, due_in="1 h")
    acts_are_past()
    assert resume_paused(desk.database) == 0
    with desk.database.transaction() as session:
        top_up(
            session, actor=OPERATOR, organization_id=changed.organization_id, amount=1, reference=str(uuid4())
        )
    assert resume_paused(desk.database) == 2
    assert (count_queued(desk, changed), count_queued(desk, idle)) == (2, 0)


def test_what_others_do_meanwhile_hides_nothing_that_was_done(
    desk: Desk, acts_are_past: Callable[[], None]
) -> None:
    mended, busy = desk.mailbox(), desk.mailbox()
    hold_all(desk, mended, 1, due_in="1 h")
    acts_are_past()
    with desk.database.transaction() as session:
        top_up(
            session, actor=OPERATOR, organization_id=mended.organization_id, amount=1, reference=str(uuid4())
        )
    acts = text(
        "INSERT INTO audit_events (id, organization_id, actor_kind, actor_id, action, resource_kind, resource_id)"
        " VALUES (:id, :organization_id, 'DaemonIdentity', :id, 'file.content_replaced', 'file', 'x')"
    )
    with desk.database.transaction() as session:
        session.execute(
            acts, [{"id": new_id(), "organization_id": busy.organization_id} for _ in range(10_000)]
        )
    assert resume_paused(desk.database) == 1


def test_a_look_at_what_changed_is_bounded_and_takes_organizations_in_turn(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = desk.mailbox()
    crowd = [first, *(desk.mailbox_beside(first) for _ in range(3))]
    lone = desk.mailbox()
    for mailbox in (*crowd, lone):
        hold_all(desk, mailbox, 1, due_in="1 h")
    monkeypatch.setattr(paused_imports, "MAX_DISTRIBUTIONS", 2)
    assert resume_paused(desk.database) == 2
    assert count_queued(desk, lone) == 1
