"""Random lives of files, compared with a small model that predicts each response.

One agent and one administrator upload, replace, renew, refer, share, read, delete and expire files, in any order, with
jobs in between; after each step the service must respond as the model predicts, byte for byte.
"""

from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from shared.files.lifecycle.expiry import expire_due
from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.lifecycle.placement import place_staged
from shared.files.sweeps import sweep_staging
from tests.support.files.file_requests import expire, refuse, run_sql, stored_names, succeed
from tests.web.files.conftest import Cast

DEADLINES = [None, "2090-01-01T00:00:00Z", "2090-06-01T00:00:00Z", "2091-01-01T00:00:00Z"]
contents = st.binary(max_size=40)


@dataclass
class Expected:
    """The predicted state of a file."""

    id: str
    versions: list[tuple[str, bytes]]
    deadline: str | None
    state: str = "Available"
    references: set[str] = field(default_factory=set)
    last_operation: tuple[UUID, Any, bytes] | None = None

    @property
    def shown(self) -> dict[str, object]:
        return {"id": self.id, "versionId": self.versions[-1][0], "revision": len(self.versions)}

    @property
    def gone(self) -> str:
        return f"file_{self.state.lower()}"


class Lives(RuleBasedStateMachine):
    cast: Cast
    files = Bundle("files")
    links = Bundle("links")

    def __init__(self) -> None:
        super().__init__()
        self.known: list[Expected] = []
        self.names = (f"r-{number}" for number in count())

    @initialize()
    def begin(self) -> None:
        self.agent = self.cast.newcomer()[1]
        self.admin = self.cast.admin

    @rule(target=files, content=contents, deadline=st.sampled_from(DEADLINES))
    def upload(self, content: bytes, deadline: str | None) -> Expected:
        operation_id = uuid4()
        first = succeed(
            self.agent.upload(content, operationId=operation_id, retentionExpiresAt=deadline), 201
        )
        assert first["revision"] == 1
        file = Expected(id=first["id"], versions=[(first["versionId"], content)], deadline=deadline)
        self.known.append(file)
        return file

    @rule(file=files, content=contents)
    def replace(self, file: Expected, content: bytes) -> None:
        operation_id, expected = uuid4(), file.shown
        answer = self.agent.replace(expected, content, operationId=operation_id)
        if file.state != "Available":
            refuse(answer, 410, file.gone)
            return
        replaced = succeed(answer)
        file.versions.append((replaced["versionId"], content))
        assert {name: replaced[name] for name in file.shown} == file.shown
        file.last_operation = (operation_id, expected, content)

    @rule(file=files)
    def retry_the_last_replace(self, file: Expected) -> None:
        if file.last_operation is None:
            return
        operation_id, expected, content = file.last_operation
        again = succeed(self.agent.replace(expected, content, operationId=operation_id))
        assert again["replayed"] is True
        assert again["versionId"] in [version for version, _ in file.versions]

    @rule(file=files, content=contents)
    def replace_what_is_not_current(self, file: Expected, content: bytes) -> None:
        answer = self.agent.replace({**file.shown, "revision": len(file.versions) + 1}, content)
        if file.state != "Available":
            refuse(answer, 410, file.gone)
        else:
            refuse(answer, 412, "version_mismatch")

    @rule(file=files, deadline=st.sampled_from(DEADLINES))
    def renew(self, file: Expected, deadline: str | None) -> None:
        answer = self.agent.renew(file.shown, deadline)
        if file.state != "Available":
            refuse(answer, 410, file.gone)
        elif deadline is not None and file.deadline is None:
            refuse(answer, 409, "retention_is_indefinite")
        elif deadline is not None and file.deadline is not None and deadline < file.deadline:
            refuse(answer, 409, "retention_shortened")
        else:
            succeed(answer)
            file.deadline = deadline

    @rule(file=files)
    def refer(self, file: Expected) -> None:
        name = next(self.names)
        answer = self.agent.refer(file.shown, "Task", name)
        if file.state != "Available":
            refuse(answer, 410, file.gone)
        else:
            succeed(answer, 201)
            file.references.add(name)

    @rule(file=files)
    def release(self, file: Expected) -> None:
        if file.references:
            assert self.agent.release(file.shown, "Task", file.references.pop()).status_code == 204
        else:
            refuse(self.agent.release(file.shown), 404, "reference_not_found")

    @rule(file=files)
    def delete(self, file: Expected) -> None:
        answer = self.admin.delete(file.shown)
        if file.state != "Available":
            refuse(answer, 410, file.gone)
        elif file.references:
            assert len(refuse(answer, 409, "file_referenced")["references"]) == len(file.references)
        else:
            succeed(answer)
            file.state = "Deleted"

    @rule(file=files)
    def pass_the_deadline(self, file: Expected) -> None:
        if file.state == "Available":
            expire(self.cast.front, file.shown)
            file.state = "Expired"

    @rule(target=links, file=files, which=st.integers(0, 3))
    def share(self, file: Expected, which: int) -> Any:
        version, content = file.versions[which % len(file.versions)]
        answer = self.agent.grant({**file.shown, "versionId": version})
        if file.state != "Available":
            refuse(answer, 410, file.gone)
            return multiple()
        return file, succeed(answer, 201)["url"], content

    @rule(link=links)
    def follow(self, link: tuple[Expected, str, bytes]) -> None:
        file, url, content = link
        answer = self.cast.anonymous.follow(url)
        if file.state == "Available":
            assert (answer.status_code, answer.data) == (200, content)
        else:
            refuse(answer, 410, "grant_expired")

    @rule(file=files, which=st.integers(0, 3))
    def download(self, file: Expected, which: int) -> None:
        version, content = file.versions[which % len(file.versions)]
        for answer, expected in (
            (self.agent.content(file.shown, versionId=version), content),
            (self.agent.content(file.shown), file.versions[-1][1]),
        ):
            if file.state == "Available":
                assert (answer.status_code, answer.data) == (200, expected)
            else:
                refuse(answer, 410, file.gone)

    @rule(job=st.sampled_from([place_staged, expire_due, collect_garbage, sweep_staging]))
    def work(self, job: Any) -> None:
        job(self.cast.front.services.database, self.cast.front.services.blobs)

    @invariant()
    def the_listing_says_what_the_model_says(self) -> None:
        listed = succeed(self.agent.list(limit=100))["files"]
        assert {
            file["id"]: (file["availability"], file["revision"], file["versionId"]) for file in listed
        } == {file.id: (file.state, len(file.versions), file.versions[-1][0]) for file in self.known}
        for file in listed:
            expected = next(each for each in self.known if each.id == file["id"])
            if expected.state != "Expired":
                assert file["metadata"]["retentionExpiresAt"] == expected.deadline

    def teardown(self) -> None:
        front = self.cast.front
        for job in (expire_due, place_staged, collect_garbage, sweep_staging):
            job(front.services.database, front.services.blobs)
        kept = {version for file in self.known for version, _ in file.versions if file.state == "Available"}
        all_versions = {version for file in self.known for version, _ in file.versions}
        assert stored_names(front) & all_versions == kept
        assert all(row.state == "live" for row in run_sql(front, "SELECT state FROM blobs"))


@pytest.mark.timeout(120)
def test_random_operations_match_the_model(cast: Cast) -> None:
    class LivesHere(Lives):
        pass

    LivesHere.cast = cast
    run_state_machine_as_test(
        LivesHere,
        settings=settings(
            max_examples=12,
            stateful_step_count=30,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
