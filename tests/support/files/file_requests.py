"""The file routes as verbs, and the required form of a response; used by every test of these routes.

An `Asker` is one set of headers: a caller and its attribution.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from uuid import UUID, uuid4

from sqlalchemy import text
from werkzeug.test import TestResponse

from shared.files.blobs.marker import MARKER
from tests.support.files.bodies import CONTENT_TYPE, multipart
from tests.support.web.web_process import Front

TABLES = (
    "files",
    "file_versions",
    "blobs",
    "file_operations",
    "file_references",
    "read_grants",
    "upload_pieces",
)
Fields = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Asker:
    """A client of the web process; `owner_id` is the owner of the files that it writes."""

    front: Front
    headers: Mapping[str, str] = field(repr=False)
    owner_id: UUID | None = None
    organization_id: UUID | None = None

    def ask(
        self,
        method: str,
        path: str,
        query: Fields | None = None,
        headers: Fields | None = None,
        **options: Any,
    ) -> TestResponse:
        """Send one request over a connection of its own, so that threads may send at once."""
        sent = {name: str(value) for name, value in (query or {}).items() if value is not None}
        return self.front.app.test_client().open(
            path,
            method=method,
            query_string=urlencode(sent) if sent else None,
            headers={**self.headers, **(headers or {})},
            buffered=True,
            **options,
        )

    def upload(
        self,
        content: bytes = b"content",
        *,
        file_name: str = "report.txt",
        media_type: str = "text/plain",
        headers: Fields | None = None,
        **query: object,
    ) -> TestResponse:
        asked = {"operationId": uuid4(), "byteSize": len(content), **query}
        return self.send_part(
            "POST", "/files/agent-artifacts", asked, content, file_name, media_type, headers
        )

    def replace(
        self,
        file: Any,
        content: bytes = b"newer content",
        *,
        file_name: str = "report.txt",
        media_type: str = "text/plain",
        headers: Fields | None = None,
        **query: object,
    ) -> TestResponse:
        """Replace the file of an upload result or metadata, expecting its version."""
        asked = {
            "operationId": uuid4(),
            "byteSize": len(content),
            "expectedVersionId": file["versionId"],
            "expectedRevision": file["revision"],
            **query,
        }
        return self.send_part("PUT", f"/files/{file['id']}", asked, content, file_name, media_type, headers)

    def send_part(
        self,
        method: str,
        path: str,
        query: Fields,
        content: bytes,
        file_name: str,
        media_type: str,
        headers: Fields | None,
    ) -> TestResponse:
        header = (
            f'Content-Disposition: form-data; name="file"; filename="{file_name}"\r\n'
            f"Content-Type: {media_type}"
        )
        body = multipart(content, header.encode())
        return self.ask(method, path, query, headers, data=body, content_type=CONTENT_TYPE)

    def begin(
        self,
        byte_size: int,
        *,
        replacing: Any = None,
        file_name: str = "report.txt",
        media_type: str = "text/plain",
        headers: Fields | None = None,
        **query: object,
    ) -> TestResponse:
        """Begin a resumable upload of a new file, or of another version of one."""
        asked: dict[str, object] = {"operationId": uuid4(), "byteSize": byte_size}
        if replacing is not None:
            asked |= {
                "expectedVersionId": replacing["versionId"],
                "expectedRevision": replacing["revision"],
            }
        sent = {
            "Upload-Complete": "?0",
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file_name)}",
            "Content-Type": media_type,
            **(headers or {}),
        }
        method, path = ("POST", "/files/agent-artifacts") if replacing is None else ("PUT", "")
        return self.ask(method, path or f"/files/{replacing['id']}", {**asked, **query}, sent)

    def append(
        self,
        begun: TestResponse,
        offset: int,
        content: bytes,
        *,
        is_last: bool = False,
        headers: Fields | None = None,
    ) -> TestResponse:
        """Send content of a resumable upload."""
        sent = {
            "Upload-Offset": offset,
            "Upload-Complete": "?1" if is_last else "?0",
            "Content-Type": "application/partial-upload",
            **(headers or {}),
        }
        return self.ask("PATCH", path_of(begun), None, sent, data=content)

    def progress(self, begun: TestResponse) -> TestResponse:
        return self.ask("HEAD", path_of(begun))

    def cancel(self, begun: TestResponse) -> TestResponse:
        return self.ask("DELETE", path_of(begun))

    def metadata(self, file: Any) -> TestResponse:
        return self.ask("GET", f"/files/{file['id']}")

    def content(
        self, file: Any, *, method: str = "GET", headers: Fields | None = None, **query: object
    ) -> TestResponse:
        return self.ask(method, f"/files/{file['id']}/content", query, headers)

    def versions(self, file: Any, **query: object) -> TestResponse:
        return self.ask("GET", f"/files/{file['id']}/versions", query)

    def grant(self, file: Any, **query: object) -> TestResponse:
        return self.ask("POST", f"/files/{file['id']}/versions/{file['versionId']}/grants", query)

    def grants(self, file: Any, **query: object) -> TestResponse:
        return self.ask("GET", f"/files/{file['id']}/grants", query)

    def revoke(self, file: Any, grant_id: object) -> TestResponse:
        return self.ask("DELETE", f"/files/{file['id']}/grants/{grant_id}")

    def renew(self, file: Any, deadline: str | None) -> TestResponse:
        return self.ask("PUT", f"/files/{file['id']}/retention", json={"retentionExpiresAt": deadline})

    def delete(self, file: Any, **query: object) -> TestResponse:
        return self.ask("DELETE", f"/files/{file['id']}", {"operationId": uuid4(), **query})

    def list(self, **query: object) -> TestResponse:
        return self.ask("GET", "/files", query)

    def references(self, file: Any) -> TestResponse:
        return self.ask("GET", f"/files/{file['id']}/references")

    def refer(self, file: Any, kind: str = "Task", reference_id: str = "t-1") -> TestResponse:
        return self.ask("PUT", f"/files/{file['id']}/references/{kind}/{quote(reference_id)}")

    def release(self, file: Any, kind: str = "Task", reference_id: str = "t-1") -> TestResponse:
        return self.ask("DELETE", f"/files/{file['id']}/references/{kind}/{quote(reference_id)}")

    def follow(self, url: str, *, method: str = "GET", headers: Fields | None = None) -> TestResponse:
        """Open a shared link as an anonymous browser does, without a credential."""
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}"
        return self.front.app.test_client().open(
            path, method=method, headers=dict(headers or {}), buffered=True
        )


def path_of(begun: TestResponse) -> str:
    """Return the path of the resumable upload in a response."""
    return urlsplit(begun.headers["Location"]).path


def succeed(answer: TestResponse, status: int = 200) -> Any:
    """Return the JSON of a response that must be a success."""
    assert answer.status_code == status, answer.text
    return answer.json


def refuse(answer: TestResponse, status: int, code: str) -> Any:
    """Return the problem of a response that must be one, complete and of the documented form (RFC 9457)."""
    found: Any = answer.json
    assert (answer.status_code, (found or {}).get("code")) == (status, code), answer.text
    assert answer.mimetype == "application/problem+json"
    assert found["status"] == status
    assert found["type"].endswith(f"/problems/{code}")
    assert found["title"]
    assert found["detail"]
    assert found["requestId"] == answer.headers["X-Request-Id"]
    if status == 401:
        assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
    return found


def fields_of(problem: Any) -> set[tuple[str, str]]:
    """Return location and name of the wrong inputs in a problem."""
    return {(at["location"], at["name"]) for at in problem.get("errors", ())}


def stored_names(front: Front) -> set[str]:
    """Return the names of all blobs in the local store, staged or placed."""
    root = Path(urlsplit(front.settings.blob_store).path)
    return {name for _, _, files in os.walk(root) for name in files} - {MARKER}


def count_rows(front: Front) -> dict[str, int]:
    """Return the number of rows of each table of the files domain."""
    counts = ", ".join(f"(SELECT count(*) FROM {table}) AS {table}" for table in TABLES)
    with front.services.database.autocommit() as session:
        return dict(session.execute(text(f"SELECT {counts}")).one()._mapping)


@contextmanager
def leaving_nothing(front: Front) -> Iterator[None]:
    """Fail unless the block leaves all tables and the store unchanged."""
    before = count_rows(front), stored_names(front)
    yield
    assert (count_rows(front), stored_names(front)) == before


def run_sql(front: Front, statement: str, **values: object) -> Sequence[Any]:
    """Read or change rows directly, as the passing of time would; return the rows."""
    with front.services.database.autocommit() as session:
        result = session.execute(text(statement), values)
        return result.all() if result.returns_rows else []


def expire(front: Front, file: Any) -> None:
    """Move a file's deadline into the past."""
    run_sql(
        front,
        "UPDATE files SET retention_expires_at = clock_timestamp() - interval '1 ms' WHERE id = :id",
        id=file["id"],
    )
