"""Attachments are fetched once, checked, and stored as files of the receiving identity."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.errors import DomainError
from shared.files.blobs.base import BlobStore, BlobStoreUnavailable, Receiver, StorageFull, StorageReadOnly
from shared.media.importing.imports import ImportState
from tests.shared.media.conftest import Desk, Mailbox, attachment
from tests.support.data.media_samples import PNG, SAMPLES, Sample
from tests.support.data.media_sources import chunked, content, in_turn, status


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.media_type)
@pytest.mark.parametrize("is_length_told", [True, False])
def test_an_attachment_becomes_a_file_of_the_receiver(
    desk: Desk, mailbox: Mailbox, sample: Sample, is_length_told: bool
) -> None:
    serve = content(sample.content, sample.media_type) if is_length_told else chunked(sample.content)
    (queued,) = desk.push(mailbox, attachment(desk.source.serve("/media", serve), sample))
    assert desk.work() == 1
    stored = desk.read(queued)
    assert (stored.state, stored.code) == (ImportState.STORED, None)
    (file,) = desk.files_of(mailbox)
    assert (file.id, file.current_version_id) == (stored.file_id, stored.version_id)
    assert (file.purpose, file.owner_kind, file.state) == ("MessagingMedia", "PrincipalIdentity", "Available")
    assert (file.organization_id, file.payer_id) == (mailbox.organization_id, mailbox.organization_id)
    assert (file.file_name, file.media_type) == (sample.file_name, sample.media_type)
    assert bytes(file.content_sha256) == hashlib.sha256(sample.content).digest()
    assert desk.content_of(stored) == sample.content
    desk.require_tidy()


def test_a_file_stays_as_long_as_its_distribution_says(desk: Desk, mailbox: Mailbox) -> None:
    desk.sql("UPDATE distributions SET media_retention_days = 3 WHERE id = :id", id=mailbox.id)
    desk.push(mailbox, attachment(desk.source.serve("/media", content(PNG.content))))
    desk.work()
    (file,) = desk.files_of(mailbox)
    left = file.retention_expires_at - datetime.now(UTC)
    assert timedelta(days=3) - timedelta(minutes=1) < left <= timedelta(days=3)


def test_secret_headers_reach_the_source_and_are_erased_with_the_location(
    desk: Desk, mailbox: Mailbox
) -> None:
    wanted = attachment(desk.source.serve("/secret", content(PNG.content)))
    (queued,) = desk.push(mailbox, wanted, headers={"a-1": {"Authorization": "Bearer hush"}})
    (row,) = desk.sql("SELECT * FROM media_imports WHERE id = :id", id=queued.id)
    assert b"hush" not in bytes(row.headers_encrypted)
    assert "hush" not in repr(queued)
    desk.work()
    assert desk.source.headers_of("/secret")["authorization"] == "Bearer hush"
    (row,) = desk.sql("SELECT * FROM media_imports WHERE id = :id", id=queued.id)
    assert (row.headers_encrypted, row.location) == (None, {})
    assert desk.push(mailbox, wanted)[0].id == queued.id


@pytest.mark.parametrize(
    ("served", "kept"),
    [
        ("Text/Plain; charset=utf-8", "text/plain"),
        ("text/\x0bplain", "application/octet-stream"),
        ("text/\0plain", "application/octet-stream"),
        ("text/pl\xe4in", "application/octet-stream"),
        ("nonsense", "application/octet-stream"),
        ("text/" + "x" * 1000, "application/octet-stream"),
    ],
)
def test_source_content_type_is_used_only_as_last_resort(
    desk: Desk, mailbox: Mailbox, served: str, kept: str
) -> None:
    url = desk.source.serve("/untyped", content(b"hello", served))
    (queued,) = desk.push(mailbox, attachment(url, media_type=None))
    desk.work()
    assert desk.read(queued).state is ImportState.STORED
    (file,) = desk.files_of(mailbox)
    assert file.media_type == kept


def test_transient_failures_are_retried(desk: Desk, mailbox: Mailbox) -> None:
    answers = in_turn(status(503), status(500), content(PNG.content))
    (queued,) = desk.push(mailbox, attachment(desk.source.serve("/media", answers)))
    desk.work()
    waiting = desk.read(queued)
    assert (waiting.state, waiting.code, waiting.attempts) == (ImportState.QUEUED, "source_answered", 1)
    assert waiting.due_at > datetime.now(UTC)
    assert desk.work() == 0
    desk.work_until_idle()
    assert (desk.read(queued).state, desk.read(queued).attempts) == (ImportState.STORED, 3)
    desk.require_tidy()


def test_a_source_that_asks_for_patience_gets_it(desk: Desk, mailbox: Mailbox) -> None:
    url = desk.source.serve("/media", status(429, **{"Retry-After": "600"}))
    (queued,) = desk.push(mailbox, attachment(url))
    desk.work()
    assert desk.read(queued).due_at > datetime.now(UTC) + timedelta(seconds=590)


def test_an_import_is_given_up_after_its_last_attempt(desk: Desk, mailbox: Mailbox) -> None:
    (queued,) = desk.push(mailbox, attachment(desk.source.serve("/down", status(503))))
    before = desk.source.count("/down")
    desk.work_until_idle()
    assert desk.source.count("/down") - before == desk.fetcher.settings.media_attempts
    assert (desk.read(queued).state, desk.read(queued).code) == (ImportState.FAILED, "source_answered")


class Failing:
    """A store that is full or unavailable while a test sets it so."""

    def __init__(self, store: BlobStore, failure: DomainError) -> None:
        self.store = store
        self.failure = failure
        self.is_failing = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def receive(self, *given: Any, **named: Any) -> Receiver:
        if self.is_failing:
            raise self.failure
        return self.store.receive(*given, **named)


@pytest.fixture(params=[StorageFull, StorageReadOnly, BlobStoreUnavailable], ids=lambda failure: failure.code)
def failing(desk: Desk, request: pytest.FixtureRequest) -> Failing:
    store: Any = Failing(desk.store, request.param())
    desk.fetcher = replace(desk.fetcher, store=store)
    return store  # type: ignore[no-any-return]


def test_full_store_postpones_import_without_counting_attempts(
    desk: Desk, mailbox: Mailbox, failing: Failing
) -> None:
    (queued,) = desk.push(mailbox, attachment(desk.source.serve("/media", content(PNG.content))))
    for _ in range(desk.fetcher.settings.media_attempts + 1):
        assert desk.work() == 1
        waiting = desk.read(queued)
        assert (waiting.state, waiting.attempts) == (ImportState.QUEUED, 0)
        assert waiting.code == failing.failure.code
        assert waiting.due_at > datetime.now(UTC)
        desk.let_time_pass()
    failing.is_failing = False
    desk.work()
    assert (desk.read(queued).state, desk.read(queued).attempts) == (ImportState.STORED, 1)
    desk.require_tidy()


def test_an_import_does_not_wait_for_a_store_for_ever(desk: Desk, mailbox: Mailbox, failing: Failing) -> None:
    (queued,) = desk.push(mailbox, attachment(desk.source.serve("/media", content(PNG.content))))
    desk.sql("UPDATE media_imports SET created_at = now() - interval '73 hours'")
    desk.work_until_idle()
    failed = desk.read(queued)
    assert (failed.state, failed.code) == (ImportState.FAILED, failing.failure.code)
    assert failed.attempts == desk.fetcher.settings.media_attempts
    desk.require_tidy()
