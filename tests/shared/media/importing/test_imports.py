"""Imports are taken down once, worked on by one at a time, and forgotten when their time has come."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from shared.db.database import Database
from shared.errors import PermissionDenied, ValidationFailed
from shared.fairness.fair_queueing import RoundRobin
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.deployments import disable_deployment
from shared.identity.directory.distributions import disable_distribution
from shared.identity.directory.identities import disable_identity
from shared.identity.directory.organizations import suspend_organization
from shared.identity.errors import OrganizationSuspended, ResourceNotFound, TargetDisabled
from shared.media.errors import DistributionDisabled, ImportConflict, TooManyImports
from shared.media.importing import claims, leases
from shared.media.importing.claims import LeaseLost, purge_imports
from shared.media.importing.imports import FetchMedia, ImportState
from tests.shared.media.conftest import Desk, Mailbox, attachment
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import Handler, content, in_turn, status


def test_fifty_pushes_at_once_are_one_import_and_one_file(desk: Desk, mailbox: Mailbox) -> None:
    wanted = attachment(desk.source.serve("/popular", content(PNG.content)))
    with ThreadPoolExecutor(10) as pool:
        pushed = list(pool.map(lambda _: desk.push(mailbox, wanted)[0], range(50)))
    assert len({one.id for one in pushed}) == 1
    assert sum(one.is_new for one in pushed) == 1
    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(lambda _: desk.work(), range(50))) == 1
    assert desk.source.count("/popular") == 1
    assert len(desk.files_of(mailbox)) == 1
    desk.require_tidy()


def test_messages_that_share_attachments_never_wait_for_each_other_in_a_circle(
    desk: Desk, mailbox: Mailbox
) -> None:
    message = uuid4().hex
    wanted = [
        attachment("https://media.example/", message_id=message, attachment_id=str(number))
        for number in range(20)
    ]
    orders = [wanted, wanted[::-1]] * 5
    with ThreadPoolExecutor(10) as pool:
        pushed = list(pool.map(lambda order: desk.push(mailbox, *order), orders))
    assert len({one.id for batch in pushed for one in batch}) == 20
    for order, batch in zip(orders, pushed, strict=True):
        assert [one.attachment_id for one in batch] == [at.attachment_id for at in order]


def test_only_generic_pushes_must_repeat_their_description(desk: Desk, mailbox: Mailbox) -> None:
    wanted = attachment("https://media.example/?signature=1")
    later = replace(wanted, location={"url": "https://media.example/?signature=2"})
    (first,) = desk.push(mailbox, wanted, network="discord")
    assert desk.push(mailbox, later, network="discord")[0].id == first.id
    desk.push(mailbox, wanted)
    with pytest.raises(ImportConflict):
        desk.push(mailbox, later)


def test_the_same_ids_on_another_network_or_distribution_are_another_attachment(
    desk: Desk, mailbox: Mailbox
) -> None:
    wanted = attachment("https://media.example/")
    other = desk.mailbox()
    pushed = [
        desk.push(mailbox, wanted),
        desk.push(mailbox, wanted, network="slack"),
        desk.push(other, wanted),
    ]
    assert len({one.id for (one,) in pushed}) == 3


@pytest.mark.parametrize("wrong", ["", "x" * 256, "a\0b", "a\ud800"])
def test_ids_that_cannot_be_kept_are_refused(desk: Desk, mailbox: Mailbox, wrong: str) -> None:
    with pytest.raises(ValidationFailed):
        desk.push(mailbox, attachment("https://media.example/", attachment_id=wrong))


def test_file_is_stored_although_its_description_is_invalid(desk: Desk, mailbox: Mailbox) -> None:
    odd = attachment(
        desk.source.serve("/odd", content(PNG.content)),
        file_name="../../e\u202evil\0.png",
        media_type="nonsense\0",
        size_bytes=-1,
        sha256=b"short",
        conversation_id="a\0b",
    )
    (queued,) = desk.push(mailbox, odd)
    desk.work()
    assert desk.read(queued).state is ImportState.STORED
    (file,) = desk.files_of(mailbox)
    assert (file.file_name, file.media_type) == ("evil.png", "image/png")


def test_only_so_many_may_wait_for_one_distribution(desk: Desk, mailbox: Mailbox) -> None:
    settings = desk.fetcher.settings.model_copy(update={"queued_imports": 3})
    desk.fetcher = replace(desk.fetcher, settings=settings)
    message = uuid4().hex
    urls = [desk.source.serve(f"/{number}", content(PNG.content)) for number in range(4)]
    wanted = [
        attachment(url, message_id=message, attachment_id=str(number)) for number, url in enumerate(urls)
    ]
    for one in wanted[:3]:
        desk.push(mailbox, one)
    with pytest.raises(TooManyImports):
        desk.push(mailbox, wanted[3])
    desk.push(desk.mailbox(), wanted[3])
    desk.push(mailbox, wanted[0])
    desk.work()
    desk.push(mailbox, wanted[3])


def test_a_message_of_more_attachments_than_may_wait_is_refused_whole(desk: Desk, mailbox: Mailbox) -> None:
    settings = desk.fetcher.settings.model_copy(update={"queued_imports": 3})
    desk.fetcher = replace(desk.fetcher, settings=settings)
    message = uuid4().hex
    wanted = [
        attachment("https://media.example/", message_id=message, attachment_id=str(number))
        for number in range(4)
    ]
    with pytest.raises(TooManyImports):
        desk.push(mailbox, *wanted, network="slack")
    assert desk.sql("SELECT 1 FROM media_imports") == []
    assert len(desk.push(mailbox, *wanted[:3], network="slack")) == 3


def test_a_slow_distribution_does_not_hold_up_another(desk: Desk, mailbox: Mailbox) -> None:
    settings = desk.fetcher.settings.model_copy(update={"concurrent_imports": 1})
    desk.fetcher = replace(desk.fetcher, settings=settings)
    first, second = (desk.push(mailbox, attachment("https://media.example/"))[0] for _ in range(2))
    (other,) = desk.push(desk.mailbox(), attachment("https://media.example/"))
    with desk.database.transaction() as session:
        taken = [claims.claim_due(session, RoundRobin(), per_distribution=1) for _ in range(3)]
    assert [claimed and claimed[0].id for claimed in taken] == [first.id, other.id, None]
    assert desk.read(second).state is ImportState.QUEUED


def test_a_claim_sends_for_another_thread_while_more_attachments_wait(desk: Desk, mailbox: Mailbox) -> None:
    for _ in range(2):
        desk.push(mailbox, attachment("https://media.example/"))
    sent = []
    for _ in range(2):
        with desk.database.transaction() as session:
            assert claims.claim_due(session, RoundRobin(), per_distribution=9) is not None
        sent.append(session.jobs)
    assert sent == [[FetchMedia()], []]


def test_concurrent_claims_respect_the_limit_of_a_distribution(desk: Desk) -> None:
    for _ in range(3):
        mailbox = desk.mailbox()
        for _ in range(6):
            desk.push(mailbox, attachment("https://media.example/"))
        all_are_here = threading.Barrier(6)

        def claim(_: int, here: threading.Barrier = all_are_here) -> bool:
            here.wait()
            with desk.database.transaction() as session:
                return claims.claim_due(session, RoundRobin(), per_distribution=2) is not None

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(claim, range(6))) == 2
        desk.sql("DELETE FROM media_imports")


def test_a_lease_is_kept_while_a_source_says_nothing(
    desk: Desk, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 0.05)
    desk = replace(desk, fetcher=replace(desk.fetcher, leases=leases.start_lease_renewal()))
    is_asked, may_answer = threading.Event(), threading.Event()

    def hesitate(handler: Handler) -> None:
        is_asked.set()
        may_answer.wait(90)
        content(PNG.content)(handler)

    (queued,) = desk.push(mailbox, attachment(desk.source.serve(f"/{uuid4()}", hesitate)))
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(desk.work)
        assert is_asked.wait(90)
        leased_until = desk.read(queued).due_at
        desk.sql("UPDATE media_imports SET due_at = due_at - interval '50 s' WHERE id = :id", id=queued.id)
        ends_at = time.monotonic() + 30
        while desk.read(queued).due_at < leased_until and time.monotonic() < ends_at:
            time.sleep(0.02)
        assert desk.read(queued).due_at >= leased_until
        may_answer.set()
        working.result(90)
    assert (desk.read(queued).state, desk.read(queued).attempts) == (ImportState.STORED, 1)


def test_worker_that_lost_its_lease_changes_nothing(desk: Desk, mailbox: Mailbox) -> None:
    (queued,) = desk.push(mailbox, attachment(desk.source.serve("/late", content(PNG.content))))
    with desk.database.transaction() as session:
        late, _ = claims.claim_due(session, RoundRobin(), per_distribution=9) or (queued, None)
    assert late.state is ImportState.FETCHING
    desk.let_time_pass()
    desk.work()
    stored = desk.read(queued)
    with desk.database.transaction() as session:
        with pytest.raises(LeaseLost):
            claims.renew_lease(session, late)
        assert claims.mark_failed(session, late, code="late", kept_days=1) is None
        assert claims.mark_stored(session, late, file_id=uuid4(), version_id=uuid4(), kept_days=1) is None
        assert not claims.release_for_retry(session, late, code="late", retry_after_seconds=None)
    assert desk.read(queued) == stored
    assert stored.state is ImportState.STORED


def test_a_worker_that_comes_back_too_late_takes_its_bytes_away(desk: Desk, mailbox: Mailbox) -> None:
    is_asked, may_answer = threading.Event(), threading.Event()

    def answer_late(handler: Handler) -> None:
        is_asked.set()
        may_answer.wait(90)
        content(PNG.content)(handler)

    url = desk.source.serve(f"/{uuid4()}", in_turn(answer_late, content(PNG.content)))
    (queued,) = desk.push(mailbox, attachment(url))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(desk.work)
        assert is_asked.wait(90)
        desk.let_time_pass()
        assert desk.work() == 1
        stored = desk.read(queued)
        may_answer.set()
        late.result(90)
    assert (stored.state, stored.attempts) == (ImportState.STORED, 2)
    assert desk.read(queued) == stored
    assert len(desk.files_of(mailbox)) == 1
    assert len(desk.sql("SELECT * FROM blobs")) == 1
    assert [
        found
        for batch in desk.store.list_unlocked()
        for found in batch
        if found.version_id != stored.version_id
    ] == []
    desk.require_tidy()


def test_the_pauses_between_attempts_grow_to_a_bound() -> None:
    for attempts in range(1, 40):
        pause = claims.delay(attempts, None)
        usual = min(900.0, 5.0 * 2 ** (attempts - 1))
        assert timedelta(seconds=usual * 0.5) <= pause <= timedelta(seconds=usual * 1.5)
    assert claims.delay(1, 600) >= timedelta(seconds=600)
    assert claims.delay(1, 10**9) <= timedelta(seconds=3600)


def test_an_import_whose_workers_all_die_is_given_up(desk: Desk, mailbox: Mailbox) -> None:
    (queued,) = desk.push(mailbox, attachment("https://media.example/"))
    attempts = desk.fetcher.settings.media_attempts
    desk.sql("UPDATE media_imports SET attempts = :attempts", attempts=attempts)
    desk.work()
    failed = desk.read(queued)
    assert (failed.state, failed.code) == (ImportState.FAILED, "import_abandoned")


def test_records_of_ended_imports_outlive_their_file_and_are_then_forgotten(
    desk: Desk, mailbox: Mailbox
) -> None:
    days = desk.fetcher.settings.media_record_days
    stored, failed, waiting = (
        desk.push(mailbox, attachment(desk.source.serve(path, answer)))[0]
        for path, answer in (("/a", content(PNG.content)), ("/b", status(404)), ("/c", status(503)))
    )
    desk.work()
    (file,) = desk.files_of(mailbox)
    kept = dict(desk.sql("SELECT id, forget_at FROM media_imports"))
    assert kept[stored.id] == file.retention_expires_at + timedelta(days=days)
    assert kept[failed.id] < datetime.now(UTC) + timedelta(days=days)
    assert kept[waiting.id] is None
    assert purge_imports(desk.database) == 0
    desk.sql("UPDATE media_imports SET forget_at = now() - interval '1 s' WHERE forget_at IS NOT NULL")
    assert purge_imports(desk.database) == 2
    assert desk.sql("SELECT id FROM media_imports") == [(waiting.id,)]


REFUSALS = {
    "distribution": DistributionDisabled,
    "deployment": TargetDisabled,
    "principal": TargetDisabled,
    "daemon": TargetDisabled,
    "organization": OrganizationSuspended,
    "executor's role": PermissionDenied,
    "receiver's role": PermissionDenied,
}


@pytest.mark.parametrize("what", REFUSALS)
def test_permissions_are_checked_at_the_push_and_at_the_store(desk: Desk, what: str) -> None:
    mailbox = desk.mailbox()

    def answer_too_late(handler: Handler) -> None:
        take_away(desk, mailbox, what)
        content(PNG.content)(handler)

    waiting = attachment(desk.source.serve("/media", content(PNG.content)))
    path = f"/midway/{uuid4()}"
    on_its_way = attachment(desk.source.serve(path, answer_too_late))
    (fetched,) = desk.push(mailbox, on_its_way)
    (queued,) = desk.push(mailbox, waiting)
    desk.work()
    code = REFUSALS[what].code
    assert desk.source.count(path) == 1
    for refused in (fetched, queued):
        assert (desk.read(refused).state, desk.read(refused).code) == (ImportState.HELD, code)
    with pytest.raises(REFUSALS[what]):
        desk.push(mailbox, attachment("https://media.example/"))
    assert desk.files_of(mailbox) == []
    assert desk.sql("SELECT * FROM blobs") == []


def test_unknown_distribution_receives_nothing(desk: Desk, mailbox: Mailbox) -> None:
    distribution = replace(mailbox.created.distribution, id=uuid4())
    stranger = replace(mailbox, created=replace(mailbox.created, distribution=distribution))
    with pytest.raises(ResourceNotFound):
        desk.push(stranger, attachment("https://media.example/"))


def take_away(desk: Desk, mailbox: Mailbox, what: str) -> None:
    database: Database = desk.database
    deployment = mailbox.deployment.deployment
    role_of = {"executor's role": deployment.daemon_identity_id, "receiver's role": mailbox.principal_id}
    if what in role_of:
        desk.sql("DELETE FROM role_bindings WHERE subject_identity_id = :id", id=role_of[what])
        return
    with database.transaction() as session:
        if what == "distribution":
            disable_distribution(session, actor=OPERATOR, distribution_id=mailbox.id)
        elif what == "deployment":
            disable_deployment(session, actor=OPERATOR, deployment_id=deployment.id)
        elif what == "organization":
            suspend_organization(session, actor=OPERATOR, organization_id=mailbox.organization_id)
        else:
            identity_id = mailbox.principal_id if what == "principal" else deployment.daemon_identity_id
            disable_identity(session, actor=OPERATOR, identity_id=identity_id)
