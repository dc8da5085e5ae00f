"""Races that exactly one side may win.

No test depends on luck: threads start together behind a barrier, many rounds of each, and the assertion holds for any
order. If the order itself matters, one side is stopped at a known point.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from shared import failpoints
from shared.files import retention
from shared.files.lifecycle.expiry import expire_due
from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.lifecycle.placement import place_staged
from shared.files.sweeps import sweep_staging
from tests.support.files.file_requests import refuse, run_sql, stored_names, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import Cast

ROUNDS = 12
DELAYS = [timedelta(seconds=0.3), timedelta(seconds=3), timedelta(seconds=30)]
"""How far a deadline is that something must come before: where a busy machine is late, the next is tried."""


@pytest.fixture
def file(cast: Cast) -> Any:
    return succeed(cast.agent.upload(b"first"), 201)


def together(*acts: Callable[[], Any]) -> list[Any]:
    """Run all functions at once; return the results in order."""
    barrier = threading.Barrier(len(acts))

    def do(act: Callable[[], Any]) -> Any:
        barrier.wait()
        return act()

    with ThreadPoolExecutor(len(acts)) as threads:
        return list(threads.map(do, acts))


def sweep(front: Front) -> None:
    """Run each job, as a worker would."""
    database, store = front.services.database, front.services.blobs
    expire_due(database, store)
    place_staged(database, store)
    collect_garbage(database, store)


def require_tidy(front: Front) -> None:
    """Fail unless, after the jobs ran, the store holds exactly the versions of files that have not ended."""
    sweep(front)
    sweep_staging(front.services.database, front.services.blobs)
    rows = run_sql(
        front,
        "SELECT v.id, b.state FROM file_versions v JOIN files f ON f.id = v.file_id"
        " LEFT JOIN blobs b ON b.version_id = v.id WHERE f.state = 'Available'",
    )
    assert {row.state for row in rows} <= {"live"}
    assert stored_names(front) == {str(row.id) for row in rows}
    owned = run_sql(front, "SELECT count(*) AS rows FROM blobs")
    assert owned[0].rows == len(rows)


def deadline_in(seconds: float) -> str:
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def end_in(front: Front, file: Any, after: timedelta) -> None:
    """Set a file's deadline so far from now, by the database's clock."""
    run_sql(
        front,
        "UPDATE files SET retention_expires_at = clock_timestamp() + :after WHERE id = :id",
        after=after,
        id=file["id"],
    )


def wait_for_the_end(front: Front, file: Any) -> None:
    """Wait until a file's deadline has passed."""
    run_sql(
        front,
        "SELECT pg_sleep(extract(epoch FROM retention_expires_at - clock_timestamp())) FROM files WHERE id = :id",
        id=file["id"],
    )


def test_of_two_replaces_with_the_same_expectation_one_wins(cast: Cast, front: Front, file: Any) -> None:
    current, revision = file, 1
    for number in range(ROUNDS):
        contents = [f"{number} {side}".encode() for side in "abcd"]
        answers = together(*(partial(cast.agent.replace, current, content) for content in contents))
        assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412]
        winner = next(index for index, answer in enumerate(answers) if answer.status_code == 200)
        current, revision = answers[winner].json, revision + 1
        assert current["revision"] == revision
        assert cast.agent.content(file).data == contents[winner]
        for answer in answers:
            if answer.status_code == 412:
                assert refuse(answer, 412, "version_mismatch")["revision"] == revision
    assert len(succeed(cast.agent.versions(file))["versions"]) == revision
    require_tidy(front)


def test_a_renewal_at_the_deadline_keeps_the_bytes_or_fails(cast: Cast, front: Front) -> None:
    """Renewed with bytes, or gone; never renewed without bytes."""
    outcomes = []
    for number in range(ROUNDS):
        file = succeed(cast.agent.upload(b"precious", retentionExpiresAt=deadline_in(3600)), 201)
        place_staged(front.services.database, front.services.blobs)
        # The deadline passes while both are under way: a little sooner in some rounds, a little later in others.
        end_in(front, file, timedelta(milliseconds=number))
        renewed, *_ = together(
            partial(cast.agent.renew, file, None), partial(sweep, front), partial(sweep, front)
        )
        sweep(front)
        outcomes.append(renewed.status_code)
        if renewed.status_code == 200:
            assert cast.agent.content(file).data == b"precious"
            assert succeed(cast.agent.metadata(file))["availability"] == "Available"
        else:
            refuse(renewed, 410, "file_expired")
            refuse(cast.agent.content(file), 410, "file_expired")
            assert file["versionId"] not in stored_names(front)
    require_tidy(front)


def test_a_renewal_that_holds_the_row_is_not_swept(
    cast: Cast, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal has decided and not committed yet when the deadline passes and the sweep runs."""
    decided, swept = threading.Event(), threading.Event()
    reach = failpoints.hit

    def stop(point: str) -> None:
        if point == "renew.before_commit":
            decided.set()
            assert swept.wait(90)
        reach(point)

    monkeypatch.setattr(failpoints, "hit", stop)
    with ThreadPoolExecutor(1) as threads:
        for delay in DELAYS:
            file = succeed(cast.agent.upload(b"precious", retentionExpiresAt=deadline_in(3600)), 201)
            end_in(front, file, delay)
            renewing = threads.submit(cast.agent.renew, file, None)
            while not (decided.wait(0.01) or renewing.done()):
                pass
            if decided.is_set():
                break
            refuse(renewing.result(), 410, "file_expired")
        assert decided.is_set(), "no renewal came before its deadline"
        wait_for_the_end(front, file)
        sweep(front)
        swept.set()
        succeed(renewing.result())
    sweep(front)
    assert cast.agent.content(file).data == b"precious"


def test_deadline_that_passes_during_a_renewal_ends_the_file(
    cast: Cast, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal has found the file available and not yet written when the deadline passes and the sweep runs."""
    require = retention._check_renewal
    found = threading.Event()

    def wait_and_sweep(session: Any, renewed: Any, deadline: Any) -> None:
        require(session, renewed, deadline)
        found.set()
        wait_for_the_end(front, file)
        with ThreadPoolExecutor(1) as threads:
            threads.submit(sweep, front).result()

    monkeypatch.setattr(retention, "_check_renewal", wait_and_sweep)
    for delay in DELAYS:
        file = succeed(cast.agent.upload(b"precious", retentionExpiresAt=deadline_in(3600)), 201)
        end_in(front, file, delay)
        refuse(cast.agent.renew(file, None), 410, "file_expired")
        if found.is_set():
            break
    assert found.is_set(), "no renewal came before its deadline"
    sweep(front)
    assert succeed(cast.agent.metadata(file))["availability"] == "Expired"
    assert file["versionId"] not in stored_names(front)


def test_a_replace_at_the_deadline_leaves_nothing_behind(cast: Cast, front: Front) -> None:
    for number in range(ROUNDS):
        file = succeed(cast.agent.upload(b"first", retentionExpiresAt=deadline_in(3600)), 201)
        end_in(front, file, timedelta(milliseconds=number))
        replaced, *_ = together(
            partial(cast.agent.replace, file), partial(sweep, front), partial(sweep, front)
        )
        if replaced.status_code != 200:
            refuse(replaced, 410, "file_expired")
    run_sql(front, "SELECT pg_sleep(0.05)")
    require_tidy(front)


def test_a_read_beside_a_delete_is_whole_or_gone(cast: Cast, front: Front) -> None:
    content = b"0123456789" * 20_000
    for _ in range(ROUNDS):
        file = succeed(cast.agent.upload(content), 201)
        link = succeed(cast.agent.grant(file), 201)["url"]

        def delete() -> Any:
            answer = cast.admin.delete(file)  # noqa: B023 (used within the round)
            collect_garbage(front.services.database, front.services.blobs)
            return answer

        read, followed, granted, deleted = together(
            partial(cast.agent.content, file),
            partial(cast.anonymous.follow, link),
            partial(cast.agent.grant, file),
            delete,
        )
        succeed(deleted)
        if read.status_code != 200:
            refuse(read, 410, "file_deleted")
        if followed.status_code != 200:
            refuse(followed, 410, "grant_expired")
        for answer in (read, followed):
            if answer.status_code == 200:
                assert answer.data == content
        if granted.status_code == 201:
            refuse(cast.anonymous.follow(granted.json["url"]), 410, "grant_expired")
        else:
            refuse(granted, 410, "file_deleted")
    require_tidy(front)


def test_a_reference_beside_a_delete_holds_the_file_or_finds_it_gone(cast: Cast) -> None:
    for _ in range(ROUNDS):
        file = succeed(cast.agent.upload(), 201)
        referred, deleted = together(partial(cast.agent.refer, file), partial(cast.admin.delete, file))
        if deleted.status_code == 200:
            refuse(referred, 410, "file_deleted")
            assert succeed(cast.agent.references(file)) == {"references": []}
        else:
            refuse(deleted, 409, "file_referenced")
            succeed(referred, 201)
            assert succeed(cast.agent.metadata(file))["availability"] == "Available"


def test_a_replace_beside_a_delete_leaves_nothing_behind(cast: Cast, front: Front) -> None:
    for _ in range(ROUNDS):
        file = succeed(cast.agent.upload(), 201)
        replaced, deleted = together(partial(cast.agent.replace, file), partial(cast.admin.delete, file))
        succeed(deleted)
        if replaced.status_code != 200:
            refuse(replaced, 410, "file_deleted")
        refuse(cast.agent.content(file), 410, "file_deleted")
    require_tidy(front)


def test_two_of_every_sweep_at_once_do_each_thing_once(cast: Cast, front: Front) -> None:
    database, store = front.services.database, front.services.blobs
    sweep(front)
    files = [succeed(cast.agent.upload(retentionExpiresAt=deadline_in(3600)), 201) for _ in range(30)]
    assert sum(together(*[partial(place_staged, database, store)] * 3)) == 30
    for file in files[:20]:
        run_sql(front, "UPDATE files SET retention_expires_at = now() WHERE id = :id", id=file["id"])
    assert sum(together(*[partial(expire_due, database, store)] * 3)) == 20
    for file in files[20:]:
        succeed(cast.admin.delete(file))
    assert sum(together(*[partial(collect_garbage, database, store)] * 3)) == 10
    assert sum(together(*[partial(sweep_staging, database, store)] * 3)) == 0
    require_tidy(front)
