"""The permissions of each client on each owner's files, for each operation (docs/specification/files.md#ownership).

`MAY` is the expectation, written by hand; the cases are made from it. "work" is a Project Agent's role: everything but
delete. "read" is a member's. "denied" may know that the file exists and do nothing with it. All others are hidden: 404,
as if there were no such file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from werkzeug.test import TestResponse

from tests.support.files.file_requests import Asker, refuse, run_sql, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import Cast, demote

ASKERS = (
    "agent",
    "for_p1",
    "for_p2",
    "colleague",
    "colleague_for_p1",
    "foreign_agent",
    "foreign_agent_for_p3",
    "agent_for_p3",
    "demoted",
    "owner",
    "admin",
    "member",
    "globex_owner",
    "anonymous",
)
OWNERS = ("agent", "p1", "p2", "colleague", "demoted", "foreign_agent", "p3")

MAY = {
    ("agent", "agent"): "work",
    ("for_p1", "p1"): "work",
    ("for_p2", "p2"): "work",
    ("colleague", "colleague"): "work",
    # An identity reaches its files through every deployment that works for it.
    ("colleague_for_p1", "p1"): "work",
    ("foreign_agent", "foreign_agent"): "work",
    ("foreign_agent_for_p3", "p3"): "work",
    # The receiving owner is known, but the executor holds nothing in that organization.
    ("agent_for_p3", "p3"): "denied",
    ("demoted", "demoted"): "denied",
    ("owner", "agent"): "all",
    ("owner", "p1"): "all",
    ("owner", "p2"): "all",
    ("owner", "colleague"): "all",
    ("owner", "demoted"): "all",
    ("admin", "agent"): "all",
    ("admin", "p1"): "all",
    ("admin", "p2"): "all",
    ("admin", "colleague"): "all",
    ("admin", "demoted"): "all",
    ("member", "agent"): "read",
    ("member", "p1"): "read",
    ("member", "p2"): "read",
    ("member", "colleague"): "read",
    ("member", "demoted"): "read",
    ("globex_owner", "foreign_agent"): "all",
    ("globex_owner", "p3"): "all",
}
UPLOADS = {
    "agent": "agent",
    "for_p1": "p1",
    "for_p2": "p2",
    "colleague": "colleague",
    "colleague_for_p1": "p1",
    "foreign_agent": "foreign_agent",
    "foreign_agent_for_p3": "p3",
    "agent_for_p3": "permission_denied",
    "demoted": "permission_denied",
    "owner": "owner_required",
    "admin": "owner_required",
    "member": "owner_required",
    "globex_owner": "owner_required",
}
SHARE = {
    "all": {"FileRead", "FileUpdate", "FileDelete"},
    "work": {"FileRead", "FileUpdate"},
    "read": {"FileRead"},
    "denied": set[str](),
}


@dataclass(frozen=True)
class Act:
    """One operation on a file: its parameters and its success."""

    needs: str
    status: int
    ask: Callable[[Asker, Any], TestResponse]


ACTS = {
    "read metadata": Act("FileRead", 200, lambda asker, file: asker.metadata(file)),
    "download": Act("FileRead", 200, lambda asker, file: asker.content(file)),
    "download a version": Act(
        "FileRead", 200, lambda asker, file: asker.content(file, versionId=file["versionId"])
    ),
    "list versions": Act("FileRead", 200, lambda asker, file: asker.versions(file)),
    "list references": Act("FileRead", 200, lambda asker, file: asker.references(file)),
    "grant": Act("FileUpdate", 201, lambda asker, file: asker.grant(file)),
    "list grants": Act("FileUpdate", 200, lambda asker, file: asker.grants(file)),
    "revoke a grant": Act(
        "FileUpdate", 200, lambda asker, file: asker.revoke(file, file.get("grantId", uuid4()))
    ),
    "renew": Act("FileUpdate", 200, lambda asker, file: asker.renew(file, None)),
    "replace": Act("FileUpdate", 200, lambda asker, file: asker.replace(file)),
    "refer": Act("FileUpdate", 201, lambda asker, file: asker.refer(file)),
    "release": Act("FileUpdate", 204, lambda asker, file: asker.release(file, "Schedule", "nightly")),
    "delete": Act("FileDelete", 200, lambda asker, file: asker.delete(file)),
}


class Play:
    """The cast, with a deployment that has lost its role, and one file of each owner at a time."""

    def __init__(self, cast: Cast) -> None:
        created, demoted = cast.newcomer()
        self.askers: dict[str, Asker] = {name: getattr(cast, name) for name in ASKERS if name != "demoted"}
        self.askers["demoted"] = demoted
        self.uploaders = {
            "agent": cast.agent,
            "p1": cast.for_p1,
            "p2": cast.for_p2,
            "colleague": cast.colleague,
            "foreign_agent": cast.foreign_agent,
            "p3": cast.foreign_agent_for_p3,
        }
        self.files = {owner: self.upload(by) for owner, by in self.uploaders.items()}
        self.files["demoted"] = self.upload(demoted)
        self.spares: dict[tuple[str, str], Any] = {}
        demote(cast.front, created)

    @staticmethod
    def upload(by: Asker) -> Any:
        file = succeed(by.upload(b"another's content"), 201)
        return {**file, "grantId": succeed(by.grant(file), 201)["grantId"]}

    def file_for(self, owner: str, act: str, *, is_allowed: bool) -> Any:
        """Return the owner's file; for an act that changes it, one like it until an allowed client has done the act."""
        if ACTS[act].needs == "FileRead" or act in ("grant", "renew"):
            return self.files[owner]
        spare = self.spares.pop((owner, act), None) or self._make_spare(owner, act)
        if not is_allowed:
            self.spares[owner, act] = spare
        return spare

    def _make_spare(self, owner: str, act: str) -> Any:
        front = self.askers["anonymous"].front
        of_demoted = owner == "demoted"
        fresh = self.upload(self.uploaders["agent" if of_demoted else owner])
        owner_id = self.askers["demoted"].owner_id if of_demoted else None
        run_sql(
            front,
            "UPDATE files SET owner_id = coalesce(:owner, owner_id) WHERE id = :id",
            owner=owner_id,
            id=fresh["id"],
        )
        if act == "release":
            run_sql(
                front,
                "INSERT INTO file_references (file_id, kind, reference_id) VALUES (:id, 'Schedule', 'nightly')",
                id=fresh["id"],
            )
        return fresh


@pytest.fixture(scope="module")
def play(cast: Cast) -> Play:
    return Play(cast)


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("asker", ASKERS)
def test_each_caller_has_exactly_the_permissions_of_the_table(
    play: Play, front: Front, asker: str, owner: str
) -> None:
    for act in ACTS:
        require_what_the_table_says(play, front, asker, owner, act)


def require_what_the_table_says(play: Play, front: Front, asker: str, owner: str, act: str) -> None:
    """Do one act to an owner's file; a failure names both."""
    share = MAY.get((asker, owner), "hidden")
    file = play.file_for(owner, act, is_allowed=ACTS[act].needs in SHARE.get(share, ()))
    before = _state(front, file)
    answer = ACTS[act].ask(play.askers[asker], file)
    if asker == "anonymous":
        refuse(answer, 401, "authentication_required")
    elif share == "hidden":
        problem = refuse(answer, 404, "file_not_found")
        assert file["id"] not in str({**problem, "requestId": ""})
    elif ACTS[act].needs not in SHARE[share]:
        problem = refuse(answer, 403, "permission_denied")
        assert problem["permission"] == ACTS[act].needs
    else:
        assert answer.status_code == ACTS[act].status, answer.text
        return
    assert _state(front, file) == before


@pytest.mark.parametrize("asker", ASKERS)
def test_an_upload_belongs_to_the_owner_of_the_call_or_is_refused(play: Play, asker: str) -> None:
    answer = play.askers[asker].upload()
    if asker == "anonymous":
        refuse(answer, 401, "authentication_required")
        return
    expected = UPLOADS[asker]
    if expected in OWNERS:
        file = succeed(answer, 201)
        metadata = succeed(play.askers[asker].metadata(file))
        kind = "PrincipalIdentity" if expected.startswith("p") else "DaemonIdentity"
        owner_id = str(play.uploaders[expected].owner_id)
        assert metadata["owner"] == {"kind": kind, "id": owner_id}
        assert metadata["organizationId"] == str(play.uploaders[expected].organization_id)
    else:
        refuse(answer, 403, expected)


@pytest.mark.parametrize("asker", ASKERS)
def test_list_has_the_files_that_the_caller_may_read(play: Play, asker: str) -> None:
    if asker == "anonymous":
        refuse(play.askers[asker].list(), 401, "authentication_required")
        return
    visible = {owner for owner in OWNERS if MAY.get((asker, owner)) in ("all", "work", "read")}
    if not visible:
        refuse(play.askers[asker].list(), 403, "permission_denied")
        return
    listed: set[str] = set()
    cursor: str | None = None
    while True:
        page = succeed(play.askers[asker].list(cursor=cursor, limit=100))
        listed |= {file["id"] for file in page["files"]}
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert {owner for owner in OWNERS if play.files[owner]["id"] in listed} == visible


@pytest.mark.parametrize(
    ("asker", "owner", "share"), [(*pair, share) for pair, share in MAY.items() if share != "denied"]
)
def test_metadata_reports_whether_the_caller_may_renew(
    play: Play, asker: str, owner: str, share: str
) -> None:
    metadata = succeed(play.askers[asker].metadata(play.files[owner]))
    assert metadata["retentionRenewalSupported"] is True
    assert metadata["canRenewRetention"] is ("FileUpdate" in SHARE[share])


def test_without_its_attribution_a_callback_is_the_deployments_own_work(cast: Cast) -> None:
    file = succeed(cast.for_p1.upload(), 201)
    refuse(cast.agent.metadata(file), 404, "file_not_found")
    own = succeed(cast.agent.upload(), 201)
    metadata = succeed(cast.agent.metadata(own))
    assert metadata["owner"] == {"kind": "DaemonIdentity", "id": str(cast.agent.owner_id)}
    assert metadata["organizationId"] == str(cast.acme)


def test_absent_and_foreign_files_have_the_same_response(cast: Cast) -> None:
    file = succeed(cast.foreign_agent.upload(), 201)
    absent = {**file, "id": "01890000-0000-7000-8000-000000000000"}
    for act in ACTS.values():
        answers = [act.ask(cast.agent, at) for at in (file, absent)]
        bodies = [{**refuse(answer, 404, "file_not_found"), "requestId": ""} for answer in answers]
        assert bodies[0] == bodies[1]
        known = [
            {name for name, _ in answer.headers if name not in ("X-Request-Id", "RateLimit")}
            for answer in answers
        ]
        assert known[0] == known[1]


def _state(front: Front, file: Any) -> Any:
    query = """
        SELECT files.*, (SELECT count(*) FROM file_references WHERE file_id = files.id) AS references_held,
            (SELECT count(*) FROM read_grants WHERE file_id = files.id AND revoked_at IS NULL) AS grants
        FROM files WHERE id = :id
    """
    return run_sql(front, query, id=file["id"])
