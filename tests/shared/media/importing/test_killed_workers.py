"""`kill -9` of a worker at every step of an import: the next one finishes it, and there is one file or none."""

from pathlib import Path

import pytest

from shared.files.blobs import S3Access
from shared.media.importing.imports import ImportState
from tests.contracts.blob_stores import S3Bench
from tests.shared.media.conftest import Desk, Mailbox, attachment, make_desk
from tests.shared.media.importing import mortal_worker
from tests.support.data.identity import make_settings
from tests.support.data.media_samples import MP4
from tests.support.data.media_sources import MediaSource, chunked, content, status
from tests.support.processes.killable_processes import die_at
from tests.support.servers.stores import open_any_store

BEFORE_COMMIT = (
    "import.claimed",
    "import.located",
    "import.connected",
    "upload.begun",
    "upload.opened",
    "upload.received",
    "upload.sealed",
    "upload.before_commit",
)
AFTER_COMMIT = ("upload.committed", "import.stored")


@pytest.fixture(params=["local", "s3"])
def worker(request: pytest.FixtureRequest, desk: Desk, tmp_path: Path) -> Desk:
    """A worker over a store of each kind, which other processes can open too."""
    return over(desk, s3_settings(request) if request.param == "s3" else local_settings(tmp_path))


@pytest.fixture(scope="module")
def s3(moto: S3Access) -> S3Access:
    S3Bench("s3://media/content", moto)
    return moto


def s3_settings(request: pytest.FixtureRequest) -> dict[str, object]:
    access: S3Access = request.getfixturevalue("s3")
    return {
        "blob_store": "s3://media/content",
        "s3_endpoint_url": access.endpoint_url,
        "s3_region": access.region,
        "s3_access_key_id": access.access_key_id,
        "s3_secret_access_key": access.secret_access_key,
    }


def local_settings(tmp_path: Path) -> dict[str, object]:
    return {"blob_store": (tmp_path / "blobs").as_uri()}


def over(desk: Desk, settings: dict[str, object]) -> Desk:
    url = desk.database.engine.url.render_as_string(hide_password=False)
    store = open_any_store(make_settings(**settings))
    return make_desk(desk.database, store, desk.source, desk.patch, database_url=url, **settings)


def test_an_import_is_stored_once_whenever_its_worker_dies(worker: Desk, mailbox: Mailbox) -> None:
    ends_after = len(BEFORE_COMMIT)
    for number, point in enumerate(BEFORE_COMMIT + AFTER_COMMIT):
        answer = content(MP4.content) if number % 2 else chunked(MP4.content)
        (queued,) = worker.push(mailbox, attachment(worker.source.serve(f"/{point}", answer), MP4))
        assert die_at(point, mortal_worker.work, worker.fetcher.settings), point
        killed = worker.read(queued)
        assert killed.state is (ImportState.FETCHING if number < ends_after else ImportState.STORED), point
        worker.work_until_idle()
        stored = worker.read(queued)
        assert (stored.state, stored.attempts) == (ImportState.STORED, 2 if number < ends_after else 1), point
        assert worker.content_of(stored) == MP4.content
        assert len(worker.files_of(mailbox)) == number + 1, point
    worker.require_tidy()


@pytest.mark.parametrize("point", ["import.failing", "import.before_failure", "import.failed"])
def test_a_failure_is_recorded_once_whenever_its_worker_dies(
    desk: Desk, mailbox: Mailbox, tmp_path: Path, source: MediaSource, point: str
) -> None:
    desk = over(desk, local_settings(tmp_path))
    (queued,) = desk.push(mailbox, attachment(source.serve("/gone", status(404))))
    assert die_at(point, mortal_worker.work, desk.fetcher.settings)
    desk.work_until_idle()
    failed = desk.read(queued)
    assert (failed.state, failed.code) == (ImportState.FAILED, "media_gone")
    desk.require_tidy()


def test_worker_without_an_armed_failpoint_ends_normally(
    desk: Desk, mailbox: Mailbox, tmp_path: Path, source: MediaSource
) -> None:
    desk = over(desk, local_settings(tmp_path))
    (queued,) = desk.push(mailbox, attachment(source.serve("/fine", content(MP4.content)), MP4))
    assert not die_at("nowhere", mortal_worker.work, desk.fetcher.settings)
    assert desk.read(queued).state is ImportState.STORED
