"""Flows of files: each write with an operationId or another key, and the jobs that follow it."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from werkzeug.test import TestResponse

from shared.ids import new_id
from tests.proof import actors
from tests.proof.actors import find_file
from tests.proof.flows import UNSEEN, Flow, State, Step
from tests.proof.world import World
from tests.support.files.file_requests import path_of, stored_names, succeed

SMALL, LARGE = b"precious", bytes(range(256)) * 1300
FILES = ("files.expire_due", "files.place_staged", "files.collect_doomed", "files.sweep_staging")
PLACING = {
    f"{kind}.{step}"
    for kind in ("placement", "collection")
    for step in ("claimed", "placed", "recorded", "removed")
}
UPLOADS = (*FILES, "files.expire_uploads")


def job(kind: str) -> Step:
    """Return a step that runs a job on a worker, as a redelivered message does."""

    def step(world: World, _: State) -> None:
        world.run([kind])

    return step


PLACE, COLLECT, EXPIRE = map(job, ("files.place_staged", "files.collect_doomed", "files.expire_due"))


def _new(content: bytes, world: World) -> State:
    return {"operation": uuid4(), "content": content, "answers": []}


def _upload(world: World, state: State) -> TestResponse:
    return _kept(state, world.agent.upload(state["content"], operationId=state["operation"]))


def _kept(state: State, answer: TestResponse) -> TestResponse:
    """Record a client's response, and return it."""
    if answer.status_code < 500:
        state["answers"].append(answer)
    return answer


def _require_one_file(world: World, state: State) -> None:
    told = [succeed(answer, 200 if answer.json["replayed"] else 201) for answer in state["answers"]]
    assert len({(at["id"], at["versionId"], at["revision"]) for at in told}) == 1, told
    assert world.agent.content(told[0]).data == state["content"]
    made = world.sql(
        "SELECT version_id FROM file_operations WHERE operation_id = %(id)s", id=state["operation"]
    )
    assert [str(row[0]) for row in made] == [told[0]["versionId"]]


def _stored(world: World, retention_expires_at: str | None = None) -> State:
    """Create a file that is stored and placed."""
    file = succeed(world.agent.upload(SMALL, retentionExpiresAt=retention_expires_at), 201)
    world.run(["files.place_staged"])
    return {"operation": uuid4(), "content": LARGE, "file": file, "answers": []}


def _replace(world: World, state: State) -> TestResponse:
    operation, file = state["operation"], state["file"]
    return _kept(state, world.agent.replace(file, state["content"], operationId=operation))


def _require_one_replace(world: World, state: State) -> None:
    told = [succeed(answer) for answer in state["answers"]]
    assert {at["revision"] for at in told} == {2}
    assert len({at["versionId"] for at in told}) == 1
    assert len(succeed(world.agent.versions(state["file"]))["versions"]) == 2
    assert world.agent.content(state["file"]).data == state["content"]
    assert _audited(world, "file.content_replaced", state["file"]["id"]) == 1


def _delete(world: World, state: State) -> TestResponse:
    return _kept(state, world.agent.delete(state["file"], operationId=state["operation"]))


def _require_deleted(world: World, state: State) -> None:
    told = [succeed(answer) for answer in state["answers"]]
    assert len({at["deletedAt"] for at in told}) == 1, told
    assert world.agent.content(state["file"]).status_code == 410
    assert world.sql("SELECT 1 FROM blobs WHERE version_id = %(id)s", id=state["file"]["versionId"]) == []
    assert _audited(world, "file.deleted", state["file"]["id"]) == 1


def _agree(world: World, state: State) -> None:
    """Check a file against every successful response about it."""
    answers = [*state["answers"], *([state["visitor"]] if "visitor" in state else [])]
    if "revoked" in state:
        is_told = any(answer.status_code < 300 for answer in state["answers"])
        assert is_told is False or state["was_written"] or state["waited"], (
            "a write of somebody who was revoked"
        )
        return
    file = find_file(world, state)
    told = {
        (answer.request.method, answer.request.path.split("/")[-1])
        for answer in answers
        if answer.status_code < 300
    }
    if file is None:
        assert told <= {("DELETE", path_of(state["begun"]).split("/")[-1])} if "begun" in state else not told
        return
    _hold_against(world, state, file, told)


def _hold_against(world: World, state: State, file: Any, told: set[tuple[str, str]]) -> None:
    ended = world.sql("SELECT state FROM files WHERE id = %(id)s", id=file["id"])[0][0]
    assert (ended == "Deleted") is (("DELETE", file["id"]) in told)
    assert not (ended == "Expired" and ("PUT", "retention") in told), "a renewed file has ended"
    assert not (ended == "Deleted" and ("PUT", "t-1") in told), "a file that is referred to was deleted"
    content = world.agent.content(file)
    assert content.status_code == (200 if ended == "Available" else 410)
    versions = succeed(world.agent.versions(file))["versions"]
    replaced = [
        at.json["versionId"] for at in state["answers"] if at.status_code == 200 and "versionId" in at.json
    ]
    assert {*replaced} <= {at["versionId"] for at in versions}
    if ended == "Available":
        expected = {SMALL, b"another", state["content"]}
        assert content.data in expected


def _in_an_hour() -> str:
    later = datetime.now(UTC) + timedelta(hours=1)
    return later.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _expiring(world: World) -> State:
    return _stored(world, _in_an_hour())


def _renew(world: World, state: State) -> TestResponse:
    return _kept(state, world.agent.renew(state["file"], None))


def _require_renewed(world: World, state: State) -> None:
    for answer in state["answers"]:
        assert succeed(answer)["metadata"]["retentionExpiresAt"] is None
    assert world.agent.content(state["file"]).data == SMALL
    assert _audited(world, "file.retention_renewed", state["file"]["id"]) == 1


def _expired(world: World) -> State:
    state = _expiring(world)
    world.sql(
        "UPDATE files SET retention_expires_at = clock_timestamp() - interval '1 ms' WHERE id = %(id)s",
        id=state["file"]["id"],
    )
    return state


def _require_expired(world: World, state: State) -> None:
    assert succeed(world.agent.metadata(state["file"]))["availability"] == "Expired"
    assert world.sql("SELECT 1 FROM blobs WHERE version_id = %(id)s", id=state["file"]["versionId"]) == []


def _grant(world: World, state: State) -> TestResponse:
    return _kept(state, world.agent.grant(state["file"]))


def _require_links(world: World, state: State) -> None:
    """A grant has no idempotency key: each attempt creates a link, and every link that a client received works."""
    for answer in state["answers"]:
        assert world.agent.follow(succeed(answer, 201)["url"]).data == SMALL
    held = succeed(world.agent.grants(state["file"]))["grants"]
    assert len(state["answers"]) <= len(held) <= len(state["answers"]) + 1


def _revoked(world: World) -> State:
    state = _stored(world)
    return state | {"grant": succeed(world.agent.grant(state["file"]), 201)}


def _revoke(world: World, state: State) -> TestResponse:
    return _kept(state, world.agent.revoke(state["file"], state["grant"]["grantId"]))


def _require_revoked(world: World, state: State) -> None:
    assert len({succeed(answer)["revokedAt"] for answer in state["answers"]}) == 1
    assert world.agent.follow(state["grant"]["url"]).status_code == 410
    assert _audited(world, "read_grant.revoked", state["grant"]["grantId"]) == 1


def _refer(world: World, state: State) -> TestResponse:
    return _kept(state, world.agent.refer(state["file"]))


def _release(world: World, state: State) -> TestResponse:
    return _kept(state, world.agent.release(state["file"]))


def _require_unreferred(world: World, state: State) -> None:
    referred, *released = [answer.status_code for answer in state["answers"]]
    assert referred in (200, 201)
    assert {*released} <= {200, 201, 204, 404}, "404 tells who did not hear of it that it is gone"
    assert succeed(world.agent.references(state["file"])) == {"references": []}


def _begin(world: World, state: State) -> TestResponse:
    """Begin an upload. If it is stored completely already, the response is the result."""
    begun = world.agent.begin(len(state["content"]), operationId=state["operation"])
    if begun.status_code == 201:
        state["begun"] = begun
    return _kept(state, begun) if begun.status_code == 200 else begun


def _send_rest(is_last: bool, world: World, state: State) -> TestResponse:
    """Send half of the content, or what is missing, as a client that first asks for the offset."""
    progress = world.agent.progress(state["begun"])
    if progress.status_code != 204:
        return progress
    offset = int(progress.headers["Upload-Offset"])
    content: bytes = state["content"]
    end = len(content) if is_last else len(content) // 2
    sent = content[offset : max(offset, end)]
    answer = world.agent.append(state["begun"], offset, sent, is_last=is_last)
    return _kept(state, answer) if is_last else answer


def _cancel(world: World, state: State) -> TestResponse:
    return _kept(state, world.agent.cancel(state["begun"]))


def _require_cancelled(world: World, state: State) -> None:
    assert {answer.status_code for answer in state["answers"]} <= {204, 410}
    assert world.sql("SELECT 1 FROM file_operations WHERE operation_id = %(id)s", id=state["operation"]) == []
    assert world.agent.progress(state["begun"]).status_code == 410


def _abandoned(world: World) -> State:
    """Create a resumable upload that has received nothing for too long."""
    state = _new(LARGE, world)
    _begin(world, state)
    succeed(_send_rest(False, world, state), 204)
    world.sql(
        "UPDATE resumable_uploads SET expires_at = now() WHERE operation_id = %(id)s", id=state["operation"]
    )
    return state


def _dead_upload(world: World) -> State:
    """Stage bytes of a web process that died before its commit."""
    store, version_id = world.front.services.blobs, new_id()
    store.begin(version_id)
    receiver = store.receive(version_id, size_bytes=len(SMALL))
    receiver.write(SMALL)
    receiver.seal()
    receiver.release()
    return {"version": str(version_id)}


def _require_discarded(world: World, state: State) -> None:
    assert state["version"] not in stored_names(world.front)


def _audited(world: World, event: str, subject: object) -> int:
    counted = "SELECT count(*) FROM audit_events WHERE action = %(event)s AND resource_id = %(id)s"
    found: Any = world.sql(counted, event=event, id=subject)
    return int(found[0][0])


HALF, REST = partial(_send_rest, False), partial(_send_rest, True)
FLOWS = (
    Flow(
        name="upload",
        prepare=partial(_new, SMALL),
        steps=(_upload, PLACE),
        require=_require_one_file,
        sweeps=FILES,
        visitors=(
            actors.DELETE,
            actors.DELETE_AND_COLLECT,
            actors.REPLACE,
            actors.PLACE,
            actors.SWEEP,
            actors.REVOKE,
        ),
        agree=_agree,
        passes=UNSEEN,
    ),
    Flow(
        name="upload, large, recorded first",
        prepare=partial(_new, LARGE),
        steps=(_upload, PLACE),
        require=_require_one_file,
        sweeps=FILES,
        records=True,
        visitors=(actors.DELETE, actors.DELETE_AND_COLLECT, actors.COLLECT, actors.SWEEP),
        agree=_agree,
    ),
    Flow(
        name="resumable upload",
        prepare=partial(_new, LARGE),
        steps=(_begin, HALF, PLACE, REST, PLACE, COLLECT),
        require=_require_one_file,
        sweeps=UPLOADS,
        visitors=(actors.TAKE_OVER, actors.CANCEL, actors.GIVE_UP),
        agree=_agree,
        passes=UNSEEN | PLACING,
    ),
    Flow(
        name="resumable upload, cancelled",
        prepare=partial(_new, LARGE),
        steps=(_begin, HALF, _cancel, COLLECT),
        require=_require_cancelled,
        sweeps=UPLOADS,
    ),
    Flow(
        name="replace",
        prepare=_expiring,
        steps=(_replace, PLACE),
        require=_require_one_replace,
        sweeps=FILES,
        visitors=(actors.DELETE, actors.EXPIRE, actors.REPLACE, actors.RENEW, actors.REVOKE),
        agree=_agree,
        passes=UNSEEN,
    ),
    Flow(
        name="delete",
        prepare=_stored,
        steps=(_delete, COLLECT),
        require=_require_deleted,
        sweeps=FILES,
        visitors=(actors.REPLACE, actors.REFER, actors.GRANT, actors.RENEW, actors.DELETE, actors.COLLECT),
        agree=_agree,
    ),
    Flow(
        name="renew",
        prepare=_expiring,
        steps=(_renew,),
        require=_require_renewed,
        sweeps=FILES,
        visitors=(actors.EXPIRE, actors.DELETE, actors.REPLACE),
        agree=_agree,
    ),
    Flow(
        name="expiry",
        prepare=_expired,
        steps=(EXPIRE,),
        require=_require_expired,
        sweeps=FILES,
        visitors=(actors.RENEW, actors.DELETE, actors.REPLACE, actors.EXPIRE, actors.COLLECT),
        agree=_agree,
    ),
    Flow(
        name="resumable upload, abandoned",
        prepare=_abandoned,
        steps=(job("files.expire_uploads"), COLLECT),
        require=_require_cancelled,
        sweeps=UPLOADS,
    ),
    Flow(
        name="upload whose front died",
        prepare=_dead_upload,
        steps=(job("files.sweep_staging"), COLLECT),
        require=_require_discarded,
        sweeps=FILES,
    ),
    Flow(name="grant", prepare=_stored, steps=(_grant,), require=_require_links),
    Flow(name="revocation of a grant", prepare=_revoked, steps=(_revoke,), require=_require_revoked),
    Flow(name="reference", prepare=_stored, steps=(_refer, _release), require=_require_unreferred),
)
