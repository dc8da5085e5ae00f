"""Invalid pushes: their error, and that nothing of them is kept."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from werkzeug.test import TestResponse

from deploy.embedded.valkey import EmbeddedValkey
from shared import failpoints
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.deployments import disable_deployment
from shared.identity.directory.distributions import (
    disable_distribution,
    rotate_distribution_token,
    rotate_webhook_secret,
)
from shared.identity.directory.organizations import suspend_organization
from tests.support.data.media_samples import PNG, Sample
from tests.support.web.web_process import Front, open_front
from tests.web.media.conftest import Connector, encode, fetch, make_connector, media, sql

PAGE = Sample(file_name="a.png", media_type="image/png", content=b"<!doctype html><p>")


@pytest.fixture(scope="module")
def small(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connector]:
    """Return a distribution at a web process with small limits."""
    directory = tmp_path_factory.mktemp("blobs")
    limits = {"max_media_bytes": 1000, "queued_imports": 2}
    with open_front(database_url, valkey_server.url, directory, any_store=True, **limits) as front:
        yield make_connector(front)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"messageId": None}, 422, "validation_failed"),
        ({"messageId": ""}, 422, "validation_failed"),
        ({"messageId": "x" * 256}, 422, "validation_failed"),
        ({"attachmentId": "a\u0000b"}, 422, "validation_failed"),
        ({"attachmentId": 7}, 422, "validation_failed"),
        ({"url": "ftp://media.example/"}, 422, "validation_failed"),
        ({"url": "//media.example/"}, 422, "validation_failed"),
        ({"url": "https://user:password@media.example/"}, 422, "url_refused"),
        ({"url": "https://media.example/ a"}, 422, "url_refused"),
        ({"url": "http://media.example/", "headers": {"Cookie": "a"}}, 422, "scheme_refused"),
        ({"url": "https://127.0.0.1/"}, 422, "address_refused"),
        ({"url": "https://media.example:22/"}, 422, "address_refused"),
        ({"headers": {"Host": "other.example"}}, 422, "header_refused"),
        ({"headers": {"X": "a\r\nY: b"}}, 422, "header_refused"),
        ({"headers": {"": "a"}}, 422, "validation_failed"),
        ({"headers": {str(number): "" for number in range(33)}}, 422, "validation_failed"),
        ({"mediaType": "png"}, 422, "validation_failed"),
        ({"mediaType": "image/png\n"}, 422, "validation_failed"),
        ({"mediaType": 'image/png; a="\r\nb: c"'}, 422, "validation_failed"),
        ({"fileName": ""}, 422, "validation_failed"),
        ({"byteSize": "3"}, 422, "validation_failed"),
        ({"byteSize": -1}, 422, "validation_failed"),
        ({"byteSize": 1 << 40}, 413, "content_too_large"),
        ({"sha256": "abc"}, 422, "validation_failed"),
        ({"purpose": "AgentArtifact"}, 400, "unknown_parameter"),
        ({"owner": {}}, 400, "unknown_parameter"),
        ({"items": []}, 400, "unknown_parameter"),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else str(value),
)
def test_a_wrong_field_is_named(connector: Connector, change: dict[str, Any], status: int, code: str) -> None:
    answer = connector.push(media(**change))
    assert (answer.status_code, (answer.json or {})["code"]) == (status, code), answer.text


@pytest.mark.parametrize("missing", ["messageId", "attachmentId", "url", "fileName", "mediaType"])
def test_a_missing_field_is_named(connector: Connector, missing: str) -> None:
    body = media()
    del body[missing]
    answer = connector.push(body)
    assert (answer.status_code, (answer.json or {})["code"]) == (422, "field_required")


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([], "validation_failed"),
        ([{"attachmentId": "a"}], "field_required"),
        ([{}] * 51, "field_required"),
        ("twice", "validation_failed"),
    ],
)
def test_a_wrong_batch_is_refused_whole(connector: Connector, items: object, code: str) -> None:
    item = {"attachmentId": "a", "url": "https://a.example/", "fileName": "a", "mediaType": "a/b"}
    sent = [item, item] if items == "twice" else items
    message = uuid4().hex
    answer = connector.push({"messageId": message, "items": sent})
    assert (answer.status_code, (answer.json or {})["code"]) == (422, code)
    assert sql(connector.front, "SELECT 1 FROM media_imports WHERE message_id = :id", id=message) == []


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"byteSize": 1}, 422, "byte_size_mismatch"),
        ({"byteSize": "1_0"}, 422, "validation_failed"),
        ({"sha256": "0" * 64}, 422, "digest_mismatch"),
        ({"messageId": "x" * 300}, 422, "validation_failed"),
        ({"mediaType": 'text/plain; a="\0"'}, 422, "validation_failed"),
        ({"messageId": "x" * 5000}, 400, "malformed_request"),
        ({"mediaType": "png"}, 422, "validation_failed"),
        ({"purpose": "AgentArtifact"}, 400, "unknown_parameter"),
        ({"url": "https://a.example/"}, 400, "unknown_parameter"),
        ({"headers": "{}"}, 400, "unknown_parameter"),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else str(value),
)
def test_invalid_form_field_is_named_and_its_file_discarded(
    connector: Connector, fields: dict[str, object], status: int, code: str
) -> None:
    answer = connector.push_form(PNG, **fields)
    assert (answer.status_code, (answer.json or {})["code"]) == (status, code), answer.text
    require_no_stray_bytes(connector)


def test_incomplete_or_repeated_form_parts_are_refused(
    connector: Connector,
) -> None:
    document = ("document", PNG)
    whole = encode(("messageId", "m"), ("attachmentId", "a"), ("file", PNG))[0]
    cases = [
        (whole[:-4], 400, "malformed_request"),
        (encode(("messageId", "a"), ("messageId", "b"), ("file", PNG))[0], 400, "duplicate_parameter"),
        (encode(("messageId", "a"), ("attachmentId", "b"))[0], 422, "file_part_required"),
        (encode(("messageId", "a"), document)[0], 422, "file_part_required"),
        (encode(("file", PNG), ("file", PNG))[0], 422, "file_part_required"),
        (encode(("file", PNG))[0], 422, "field_required"),
        (whole.replace(b"\r\na\r\n", b"\r\n\xff\r\n"), 400, "malformed_request"),
    ]
    for body, status, code in cases:
        answer = connector.front.post(
            connector.path,
            connector.authorization,
            data=body,
            headers={"Content-Type": "multipart/form-data; boundary=boundary"},
        )
        assert (answer.status_code, (answer.json or {})["code"]) == (status, code), answer.text
    require_no_stray_bytes(connector)


def test_a_page_in_disguise_is_refused(connector: Connector) -> None:
    answer = connector.push_form(PAGE)
    assert (answer.status_code, (answer.json or {})["code"]) == (422, "media_type_mismatch")
    require_no_stray_bytes(connector)


def test_form_fields_override_the_name_and_type_of_the_part(
    connector: Connector,
) -> None:
    odd = Sample(file_name="../../e\u202evil.png", media_type="image/png", content=PNG.content)
    for fields, named, typed in (
        ({}, "evil.png", "image/png"),
        ({"fileName": "/a/b\\c.jpg", "mediaType": "text/plain"}, "c.jpg", "application/octet-stream"),
    ):
        pushed = connector.push_form(odd, **fields).json or {}
        (version,) = sql(
            connector.front, "SELECT * FROM file_versions WHERE id = :id", id=pushed["versionId"]
        )
        assert (version.file_name, version.media_type) == (named, typed)


def test_files_have_a_bound(small: Connector) -> None:
    large = Sample(file_name="a", media_type="text/plain", content=b"x" * 1001)
    assert small.push_form(large).status_code == 413
    fits = Sample(file_name="a", media_type="text/plain", content=b"x" * 1000)
    assert small.push_form(fits).status_code == 202
    huge = Sample(file_name="a", media_type="text/plain", content=b"x" * 200_000)
    answer = small.push_form(huge)
    assert (answer.status_code, (answer.json or {})["code"]) == (413, "content_too_large")
    require_no_stray_bytes(small)


def test_only_so_many_may_wait(small: Connector) -> None:
    bodies = [media() for _ in range(3)]
    assert [small.push(body).status_code for body in bodies] == [202, 202, 429]
    refused = small.push(bodies[2])
    assert (refused.json or {})["code"] == "too_many_imports"
    assert int(refused.headers["Retry-After"]) > 0
    assert small.push(bodies[0]).status_code == 202


def test_a_body_of_another_type_is_415(connector: Connector) -> None:
    answer = connector.front.post(
        connector.path, connector.authorization, data=b"a", headers={"Content-Type": "text/plain"}
    )
    assert (answer.status_code, (answer.json or {})["code"]) == (415, "unsupported_media_type")


def test_only_the_distributions_own_token_pushes(front: Front, connector: Connector) -> None:
    other = make_connector(front)
    owner = front.identity.person(connector.organization_id, Role.WORKSPACE_OWNER)
    agent = front.identity.authorization(connector.deployment)
    for authorization, status, code in (
        (other.authorization, 404, "not_found"),
        (owner.authorization, 403, "permission_denied"),
        (agent, 403, "permission_denied"),
        ("Bearer svd_nonsense", 401, "invalid_token"),
    ):
        answer = connector.push(media(), authorization)
        assert (answer.status_code, (answer.json or {})["code"]) == (status, code)
    answer = front.post(connector.path, json=media())
    assert (answer.status_code, (answer.json or {})["code"]) == (401, "authentication_required")


LOSSES = [
    ("token", 401, "invalid_token"),
    ("distribution", 403, "distribution_disabled"),
    ("deployment", 409, "target_disabled"),
    ("organization", 403, "organization_suspended"),
    ("executor", 403, "permission_denied"),
    ("receiver", 403, "permission_denied"),
]


def take_authority(connector: Connector, what: str) -> None:
    """Remove one condition that storing a push depends on."""
    deployment = connector.deployment.deployment
    with connector.front.services.database.transaction() as session:
        if what == "deployment":
            disable_deployment(session, actor=OPERATOR, deployment_id=deployment.id)
        elif what == "distribution":
            disable_distribution(session, actor=OPERATOR, distribution_id=connector.id)
        elif what == "token":
            rotate_distribution_token(
                session, actor=OPERATOR, distribution_id=connector.id, overlap_seconds=0
            )
        elif what == "secret":
            settings = connector.front.services.settings
            rotate_webhook_secret(
                session, settings, actor=OPERATOR, distribution_id=connector.id, overlap_seconds=0
            )
        elif what == "organization":
            suspend_organization(session, actor=OPERATOR, organization_id=connector.organization_id)
    if what in ("executor", "receiver"):
        identity_id = deployment.daemon_identity_id if what == "executor" else connector.principal_id
        sql(connector.front, "DELETE FROM role_bindings WHERE subject_identity_id = :id", id=identity_id)


def require_nothing_taken(connector: Connector) -> None:
    taken = sql(connector.front, "SELECT 1 FROM media_imports WHERE distribution_id = :id", id=connector.id)
    assert taken == []
    require_no_stray_bytes(connector)


@pytest.mark.parametrize(
    ("what", "status", "code"), [loss for loss in LOSSES if loss[0] not in ("token", "distribution")]
)
def test_nothing_is_taken_for_whoever_may_not_store_it(
    front: Front, what: str, status: int, code: str
) -> None:
    connector = make_connector(front)
    take_authority(connector, what)
    for answer in (connector.push(media()), connector.push_form(), connector.push_signed(media())):
        assert (answer.status_code, (answer.json or {})["code"]) == (status, code)
    require_nothing_taken(connector)


@pytest.mark.parametrize(("what", "status", "code"), LOSSES)
def test_push_stores_nothing_if_its_authority_ends_before_the_commit(
    front: Front, monkeypatch: pytest.MonkeyPatch, what: str, status: int, code: str
) -> None:
    connector = make_connector(front)

    def reach(point: str) -> None:
        if point == "upload.before_commit":
            monkeypatch.setattr(failpoints, "hit", lambda _: None)
            take_authority(connector, what)

    monkeypatch.setattr(failpoints, "hit", reach)
    answer = connector.push_form()
    assert (answer.status_code, (answer.json or {})["code"]) == (status, code)
    require_nothing_taken(connector)


PROOFS: list[tuple[str, str, str, Callable[[Connector], TestResponse]]] = [
    ("token", "push.received", "invalid_token", lambda at: at.push(media())),
    ("secret", "push.received", "signature_invalid", lambda at: at.push_signed(media())),
    ("secret", "upload.before_commit", "signature_invalid", lambda at: at.push_signed_form()),
]


@pytest.mark.parametrize(("what", "point", "code", "push"), PROOFS)
def test_a_push_whose_token_or_secret_was_replaced_meanwhile_stores_nothing(
    front: Front,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    point: str,
    code: str,
    push: Callable[[Connector], TestResponse],
) -> None:
    connector = make_connector(front)
    reached = []

    def reach(name: str) -> None:
        if name == point:
            monkeypatch.setattr(failpoints, "hit", lambda _: None)
            reached.append(name)
            take_authority(connector, what)

    monkeypatch.setattr(failpoints, "hit", reach)
    answer = push(connector)
    assert reached
    assert (answer.status_code, (answer.json or {})["code"]) == (401, code)
    require_nothing_taken(connector)


def test_imports_are_shown_to_their_distribution_and_its_organizations_users(
    front: Front, connector: Connector
) -> None:
    other = make_connector(front)
    pushed = connector.push(media()).json or {}
    one = f"{connector.path}/{pushed['importId']}"
    owner = front.identity.person(connector.organization_id, Role.WORKSPACE_OWNER).authorization
    foreign = front.identity.person(other.organization_id, Role.WORKSPACE_OWNER).authorization
    agent = front.identity.authorization(connector.deployment)
    for path in (one, connector.path):
        for authorization, status in (
            (connector.authorization, 200),
            (owner, 200),
            (foreign, 404),
            (other.authorization, 404),
            (agent, 403),
        ):
            assert front.get(path, authorization).status_code == status, path
    missing = front.get(f"{connector.path}/{uuid4()}", connector.authorization)
    assert (missing.status_code, (missing.json or {})["code"]) == (404, "import_not_found")
    elsewhere = front.get(f"{other.path}/{pushed['importId']}", other.authorization)
    assert (elsewhere.status_code, (elsewhere.json or {})["code"]) == (404, "import_not_found")


def test_imports_are_listed_newest_first_by_state_and_page(front: Front) -> None:
    connector = make_connector(front)
    queued = [(connector.push(media()).json or {})["importId"] for _ in range(3)]
    stored = [(connector.push_form().json or {})["importId"] for _ in range(2)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = front.get(f"{connector.path}?limit=2{cursor}", connector.authorization).json or {}
        seen += [one["importId"] for one in page["imports"]]
        if page["nextCursor"] is None:
            break
        cursor = f"&cursor={page['nextCursor']}"
    assert seen == [*stored[::-1], *queued[::-1]]
    only = front.get(f"{connector.path}?state=Queued", connector.authorization).json or {}
    assert [one["importId"] for one in only["imports"]] == queued[::-1]
    wrong = front.get(f"{connector.path}?state=queued", connector.authorization)
    assert wrong.status_code == 422


def test_what_failed_says_why(front: Front, connector: Connector) -> None:
    sql(front, "UPDATE media_imports SET due_at = now() + interval '1 day' WHERE state = 'Queued'")
    pushed = connector.push(media("https://unknown.invalid/")).json or {}
    sql(front, "UPDATE media_imports SET attempts = 100 WHERE id = :id", id=pushed["importId"])
    fetch(front)
    failed = connector.read(pushed["importId"])
    assert (failed["state"], failed["code"]) == ("Failed", "import_abandoned")
    assert failed["endedAt"] is not None


def require_no_stray_bytes(connector: Connector) -> None:
    stray = sql(
        connector.front,
        "SELECT * FROM blobs b WHERE NOT EXISTS (SELECT FROM file_versions v WHERE v.id = b.version_id)",
    )
    assert stray == []
    store = connector.front.services.blobs
    assert [
        at.version_id for batch in store.list_unlocked() for at in batch if not _has_row(connector, at)
    ] == []


def _has_row(connector: Connector, at: Any) -> bool:
    return bool(sql(connector.front, "SELECT 1 FROM blobs WHERE version_id = :id", id=at.version_id))
