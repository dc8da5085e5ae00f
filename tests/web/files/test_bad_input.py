"""Input of wrong form or value: one response each, and nothing left behind.

Specified in docs/specification/wire.md#errors.
"""

import json
from io import BytesIO
from typing import Any
from uuid import uuid4

import pytest

from tests.support.files.bodies import CONTENT_TYPE, HEADER, multipart
from tests.support.files.file_requests import fields_of, leaving_nothing, refuse, run_sql, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import Cast

WRONG_IDS = [
    "",
    "x",
    "{01890000-0000-7000-8000-000000000000}",
    "urn:uuid:01890000-0000-7000-8000-000000000000",
    "01890000000070008000000000000000",
    "01890000-0000-7000-8000-00000000000",
    "01890000-0000-7000-8000-0000000000000",
    " 01890000-0000-7000-8000-000000000000",
    "01890000-0000-7000-8000-00000000000g",
    "01890000-0000-7000-8000-00000000000\u0660",
]
WRONG_COUNTS = [
    "",
    "-1",
    "+1",
    " 1",
    "1 ",
    "1_0",
    "01",
    "1.0",
    "1e3",
    "0x10",
    "\u0661",
    "9223372036854775808",
    "9" * 400,
    "NaN",
    "true",
]
UPLOAD = "/files/agent-artifacts"
NOWHERE = "01890000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def file(cast: Cast) -> Any:
    return succeed(cast.agent.upload(b"first", retentionExpiresAt="2090-01-01T00:00:00Z"), 201)


def routes_of(file: Any) -> dict[str, tuple[str, str, dict[str, str]]]:
    """Return each file operation: method, path and a valid query."""
    path = f"/files/{file['id']}"
    operation = {"operationId": str(uuid4())}
    expectation = {"expectedVersionId": file["versionId"], "expectedRevision": "1"}
    return {
        "upload": ("POST", UPLOAD, {**operation, "byteSize": "7"}),
        "replace": ("PUT", path, {**operation, **expectation, "byteSize": "7"}),
        "list": ("GET", "/files", {"limit": "1"}),
        "metadata": ("GET", path, {}),
        "delete": ("DELETE", path, operation),
        "renew": ("PUT", f"{path}/retention", {}),
        "versions": ("GET", f"{path}/versions", {}),
        "grant": ("POST", f"{path}/versions/{file['versionId']}/grants", {"ttlSeconds": "60"}),
        "references": ("GET", f"{path}/references", {}),
        "refer": ("PUT", f"{path}/references/Task/t-1", {}),
        "release": ("DELETE", f"{path}/references/Task/t-1", {}),
        "content": ("GET", f"{path}/content", {"versionId": file["versionId"]}),
    }


ROUTES = tuple(routes_of({"id": NOWHERE, "versionId": NOWHERE}))
FORBIDDEN = [
    "purpose",
    "visibility",
    "owner",
    "ownerId",
    "ownerKind",
    "placement",
    "storageClass",
    "bucket",
    "operation_id",
    "OperationId",
    "x",
    "",
    "$filter",
    "grants",
]
FILTERS = {"purpose", "ownerId", "ownerKind"}
"""Of these, what a list is narrowed by."""


@pytest.mark.parametrize("route", ROUTES)
def test_no_operation_takes_a_parameter_it_does_not_know(
    cast: Cast, front: Front, file: Any, route: str
) -> None:
    method, path, query = routes_of(file)[route]
    with leaving_nothing(front):
        for name in set(FORBIDDEN) - (FILTERS if route == "list" else set()):
            problem = refuse(cast.admin.ask(method, path, {**query, name: "x"}), 400, "unknown_parameter")
            assert fields_of(problem) == {("query", name)}


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if routes_of({"id": "", "versionId": ""})[route][2]]
)
def test_no_parameter_stands_twice(cast: Cast, front: Front, file: Any, route: str) -> None:
    method, path, query = routes_of(file)[route]
    written = "&".join(f"{name}={value}" for name, value in query.items())
    with leaving_nothing(front):
        for name, value in query.items():
            encoded = f"%{ord(name[0]):02x}{name[1:]}"
            for again in (f"{name}={value}", f"{name}=", f"{name}", f"{encoded}={value}"):
                problem = refuse(
                    cast.admin.ask(method, f"{path}?{written}&{again}"), 400, "duplicate_parameter"
                )
                assert fields_of(problem) == {("query", name)}


@pytest.mark.parametrize(
    ("route", "name"),
    [
        ("upload", "operationId"),
        ("upload", "byteSize"),
        ("replace", "operationId"),
        ("replace", "byteSize"),
        ("delete", "operationId"),
    ],
)
def test_missing_required_input_is_refused(
    cast: Cast, front: Front, file: Any, route: str, name: str
) -> None:
    method, path, query = routes_of(file)[route]
    query.pop(name)
    with leaving_nothing(front):
        problem = refuse(cast.admin.ask(method, path, query), 422, "field_required")
    assert fields_of(problem) == {("query", name)}


@pytest.mark.parametrize("wrong", WRONG_IDS)
@pytest.mark.parametrize(
    ("route", "name"),
    [
        ("upload", "operationId"),
        ("upload", "organizationId"),
        ("replace", "operationId"),
        ("replace", "expectedVersionId"),
        ("delete", "operationId"),
        ("content", "versionId"),
        ("list", "cursor"),
    ],
)
def test_an_id_has_one_form(cast: Cast, front: Front, file: Any, route: str, name: str, wrong: str) -> None:
    method, path, query = routes_of(file)[route]
    with leaving_nothing(front):
        problem = refuse(cast.admin.ask(method, path, {**query, name: wrong}), 400, "malformed_request")
    assert fields_of(problem) == {("query", name)}


@pytest.mark.parametrize("wrong", WRONG_COUNTS)
@pytest.mark.parametrize(
    ("route", "name"),
    [
        ("upload", "byteSize"),
        ("replace", "byteSize"),
        ("replace", "expectedRevision"),
        ("grant", "ttlSeconds"),
        ("list", "limit"),
    ],
)
def test_a_count_has_one_spelling(
    cast: Cast, front: Front, file: Any, route: str, name: str, wrong: str
) -> None:
    method, path, query = routes_of(file)[route]
    with leaving_nothing(front):
        problem = refuse(cast.admin.ask(method, path, {**query, name: wrong}), 422, "validation_failed")
    assert fields_of(problem) == {("query", name)}


@pytest.mark.parametrize(
    ("kind", "reference_id"),
    [
        ("task", "t-1"),
        ("Run", "t-1"),
        ("", "t-1"),
        ("Task", ""),
        ("Task", "x" * 201),
        ("Task", "a\nb"),
        ("Task", "a\x00b"),
        ("Task", "\x7f"),
    ],
)
def test_an_association_has_a_known_kind_and_a_plain_id(
    cast: Cast, front: Front, kind: str, reference_id: str
) -> None:
    with leaving_nothing(front):
        refuse(cast.agent.upload(associationKind=kind, associationId=reference_id), 422, "validation_failed")


@pytest.mark.parametrize("query", ["%ff", "a=%ff", "%ed%a0%80=1", "operationId=%c3%28"])
def test_a_query_is_utf_8(cast: Cast, front: Front, query: str) -> None:
    with leaving_nothing(front):
        answer = cast.agent.ask("POST", f"{UPLOAD}?{query}")
        assert answer.status_code == 400
        assert answer.json is not None
        assert answer.json["code"] == "malformed_request"


def test_every_wrong_parameter_is_named_at_once(cast: Cast) -> None:
    problem = refuse(
        cast.agent.ask("POST", UPLOAD, {"operationId": "x", "byteSize": "-1", "organizationId": "y"}),
        400,
        "malformed_request",
    )
    assert fields_of(problem) == {("query", name) for name in ("operationId", "byteSize", "organizationId")}


PART = b"Content-Disposition: form-data; name="
TYPE = b"\r\nContent-Type: text/plain"
FIRST_PART = b"--bd-7f3a\r\n" + HEADER + b"\r\n\r\ncontent\r\n"
BROKEN_BODIES = {
    "empty": (b"", 400, "malformed_request"),
    "no part": (b"--bd-7f3a--\r\n", 422, "file_part_required"),
    "no boundary": (b"content", 400, "malformed_request"),
    "another boundary": (multipart(b"content").replace(b"bd-7f3a", b"bd-xxxx"), 400, "malformed_request"),
    "no closing boundary": (multipart(b"content")[:-5], 400, "malformed_request"),
    "cut in the content": (multipart(b"content")[:-20], 400, "malformed_request"),
    "cut in the header": (multipart(b"content")[:40], 400, "malformed_request"),
    "another name": (
        multipart(b"content", PART + b'"upload"; filename="a"' + TYPE),
        422,
        "file_part_required",
    ),
    "no name": (multipart(b"content", PART + b'""; filename="a"' + TYPE), 422, "file_part_required"),
    "no file name": (multipart(b"content", PART + b'"file"' + TYPE), 422, "file_part_required"),
    "no media type": (multipart(b"content", PART + b'"file"; filename="a"'), 422, "file_part_required"),
    "a wrong media type": (
        multipart(b"content", PART + b'"file"; filename="a"\r\nContent-Type: text'),
        422,
        "file_part_required",
    ),
    "a field before": (
        b'--bd-7f3a\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nx\r\n' + multipart(b"content"),
        422,
        "file_part_required",
    ),
    "a second file": (FIRST_PART + multipart(b"content"), 422, "file_part_required"),
    "a long header": (
        multipart(b"content", HEADER + b"\r\nX: " + b"x" * 10_000),
        400,
        "malformed_request",
    ),
    "a long end": (multipart(b"content", after=b"\r\n" + b"x" * 2000), 400, "malformed_request"),
    "a header that is not UTF-8": (
        multipart(b"content", PART + b'"file"; filename="\xff"' + TYPE),
        400,
        "malformed_request",
    ),
    "encoded content": (
        multipart(b"content", HEADER + b"\r\nContent-Transfer-Encoding: base64"),
        400,
        "malformed_request",
    ),
}


@pytest.mark.parametrize("what", BROKEN_BODIES)
def test_a_broken_body_is_never_stored(cast: Cast, front: Front, file: Any, what: str) -> None:
    body, status, code = BROKEN_BODIES[what]
    for route in ("upload", "replace"):
        method, path, query = routes_of(file)[route]
        with leaving_nothing(front):
            answer = cast.agent.ask(
                method, path, query, input_stream=BytesIO(body), content_type=CONTENT_TYPE
            )
            refuse(answer, status, code)
    assert succeed(cast.agent.metadata(file))["revision"] == 1


@pytest.mark.parametrize(
    ("content_type", "status", "code"),
    [
        ("application/octet-stream", 415, "unsupported_media_type"),
        ("application/json", 415, "unsupported_media_type"),
        ("multipart/mixed; boundary=bd-7f3a", 415, "unsupported_media_type"),
        ("", 415, "unsupported_media_type"),
        ("multipart/form-data", 400, "malformed_request"),
        ("multipart/form-data; boundary=", 400, "malformed_request"),
        (f"multipart/form-data; boundary={'x' * 71}", 400, "malformed_request"),
        ("multipart/form-data; boundary=bd-7f3a; boundary=b", 400, "malformed_request"),
    ],
)
def test_only_a_form_with_a_boundary_is_taken(
    cast: Cast, front: Front, content_type: str, status: int, code: str
) -> None:
    query = {"operationId": uuid4(), "byteSize": 7}
    with leaving_nothing(front):
        answer = cast.agent.ask("POST", UPLOAD, query, data=multipart(b"content"), content_type=content_type)
        refuse(answer, status, code)


@pytest.mark.parametrize("lie", [1, 100, 10_000])
def test_body_shorter_than_its_length_is_never_stored(cast: Cast, front: Front, lie: int) -> None:
    body = multipart(b"content")
    for cut in (len(body) - 3, 20, 0):
        with leaving_nothing(front):
            answer = cast.agent.ask(
                "POST",
                UPLOAD,
                {"operationId": uuid4(), "byteSize": 7},
                input_stream=BytesIO(body[:cut]),
                content_type=CONTENT_TYPE,
                environ_overrides={"CONTENT_LENGTH": str(len(body) + lie)},
            )
            refuse(answer, 400, "malformed_request")


def test_body_longer_than_its_length_is_refused(cast: Cast, front: Front) -> None:
    body = multipart(b"content")
    with leaving_nothing(front):
        answer = cast.agent.ask(
            "POST",
            UPLOAD,
            {"operationId": uuid4(), "byteSize": 7},
            data=body,
            content_type=CONTENT_TYPE,
            environ_overrides={"CONTENT_LENGTH": str(len(body) - 6)},
        )
        refuse(answer, 400, "malformed_request")


BROKEN_JSON = {
    "nothing": b"",
    "no JSON": b"{retentionExpiresAt: null}",
    "cut off": b'{"retentionExpiresAt": nu',
    "two values": b'{"retentionExpiresAt": null} {}',
    "a key twice": b'{"retentionExpiresAt": null, "retentionExpiresAt": null}',
    "a key twice within": b'{"retentionExpiresAt": {"a": 1, "a": 1}}',
    "NaN": b'{"retentionExpiresAt": NaN}',
    "Infinity": b'{"retentionExpiresAt": -Infinity}',
    "a huge number": b'{"retentionExpiresAt": ' + b"9" * 100_000 + b"}",
    "a BOM": b'\xef\xbb\xbf{"retentionExpiresAt": null}',
    "UTF-16": '{"retentionExpiresAt": null}'.encode("utf-16"),
    "Latin-1": '{"retentionExpiresAt": "é"}'.encode("latin-1"),
    "deep lists": b'{"retentionExpiresAt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "half a surrogate pair": b'{"retentionExpiresAt": "\\ud800"}',
    "half a surrogate pair in a key": b'{"retentionExpiresAt": null, "\\uDFFF": 1}',
    "a list": b"[]",
    "null": b"null",
    "a string": b'"retentionExpiresAt"',
    "a number": b"0",
}


@pytest.mark.parametrize("what", BROKEN_JSON)
def test_json_is_read_strictly(cast: Cast, front: Front, file: Any, what: str) -> None:
    with leaving_nothing(front):
        answer = cast.agent.ask(
            "PUT", f"/files/{file['id']}/retention", data=BROKEN_JSON[what], content_type="application/json"
        )
        refuse(answer, 400, "malformed_json")
    require_deadline(cast, file)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"retentionExpiresAt": None, "purpose": "AgentArtifact"}, "unknown_parameter"),
        ({"retentionExpiresAt": None, "owner": {}}, "unknown_parameter"),
        ({"retention_expires_at": None}, "unknown_parameter"),
        ({"retentionExpiresAt": None, "\U0001f600": 1}, "unknown_parameter"),
        ({"retentionExpiresAt": None, **{f"k{number}": 1 for number in range(10_000)}}, "unknown_parameter"),
    ],
    ids=["purpose", "owner", "snake", "pair", "many"],
)
def test_json_holds_no_unknown_field(
    cast: Cast, front: Front, file: Any, body: dict[str, object], code: str
) -> None:
    with leaving_nothing(front):
        answer = cast.agent.ask(
            "PUT",
            f"/files/{file['id']}/retention",
            data=json.dumps(body).encode(),
            content_type="application/json",
        )
        refuse(answer, 400, code)
    require_deadline(cast, file)


@pytest.mark.parametrize(
    "content_type",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "application/problem+json", "text/json"],
)
def test_json_is_declared_as_such(cast: Cast, front: Front, file: Any, content_type: str | None) -> None:
    with leaving_nothing(front):
        answer = cast.agent.ask(
            "PUT",
            f"/files/{file['id']}/retention",
            data=b'{"retentionExpiresAt": null}',
            content_type=content_type,
        )
        refuse(answer, 415, "unsupported_media_type")
    require_deadline(cast, file)


def test_a_huge_json_body_is_refused_unread(cast: Cast, front: Front, file: Any) -> None:
    with leaving_nothing(front):
        answer = cast.agent.ask(
            "PUT", f"/files/{file['id']}/retention", data=b" " * (2 << 20), content_type="application/json"
        )
        refuse(answer, 413, "content_too_large")
    require_deadline(cast, file)


def require_deadline(cast: Cast, file: Any) -> None:
    metadata = succeed(cast.agent.metadata(file))["metadata"]
    assert metadata["retentionExpiresAt"] == "2090-01-01T00:00:00Z"


def test_nothing_of_all_this_was_kept(cast: Cast, front: Front, file: Any) -> None:
    rows = run_sql(front, "SELECT count(*) AS receiving FROM blobs WHERE state = 'receiving'")
    assert rows[0].receiving == 0
    assert front.services.receptions._active == set()
