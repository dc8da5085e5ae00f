"""HTTP clients of the file routes: a deployment's agent, and the organization's owner, who may delete.

Each call opens a connection of its own, so that the death of a web process causes exactly one connection error. `via`
sends a request to another web process than the first.
"""

import io
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import requests

TIMEOUT_SECONDS = 90.0


class Client:
    """A client with a bearer credential."""

    def __init__(self, url: str, token: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.url = url
        self.token = token
        self.timeout_seconds = timeout_seconds

    def request(
        self,
        method: str,
        path: str,
        *,
        via: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> requests.Response:
        authorization = {"Authorization": f"Bearer {self.token}", "Connection": "close"}
        return requests.request(
            method,
            (via or self.url) + path,
            headers={**authorization, **(headers or {})},
            timeout=self.timeout_seconds,
            **more,
        )

    def upload(
        self,
        content: bytes,
        *,
        operation: UUID,
        via: str | None = None,
        prefer: str | None = None,
        **query: Any,
    ) -> requests.Response:
        return self.request(
            "POST",
            "/files/agent-artifacts",
            via=via,
            headers={"Prefer": prefer} if prefer else None,
            params={"operationId": str(operation), "byteSize": len(content), **query},
            files=part(content),
        )

    def begin(self, byte_size: int, *, operation: UUID, via: str | None = None) -> requests.Response:
        """Begin a resumable upload."""
        headers = {
            "Upload-Complete": "?0",
            "Content-Disposition": "attachment; filename=a.bin",
            "Content-Type": "application/octet-stream",
        }
        asked = {"operationId": str(operation), "byteSize": str(byte_size)}
        return self.request("POST", "/files/agent-artifacts", via=via, headers=headers, params=asked)

    def append(
        self, path: str, offset: int, content: bytes, *, is_last: bool = False, via: str | None = None
    ) -> requests.Response:
        """Append content to a resumable upload."""
        headers = {
            "Upload-Complete": "?1" if is_last else "?0",
            "Upload-Offset": str(offset),
            "Content-Type": "application/partial-upload",
        }
        return self.request("PATCH", path, via=via, headers=headers, data=content)

    def offset(self, path: str) -> int:
        """Return how many bytes of a resumable upload the service has."""
        return int(self.request("HEAD", path).headers["Upload-Offset"])

    def replace(
        self, content: bytes, *, operation: UUID, current: Mapping[str, Any], via: str | None = None
    ) -> requests.Response:
        expected = {"expectedVersionId": current["versionId"], "expectedRevision": current["revision"]}
        return self.request(
            "PUT",
            f"/files/{current['id']}",
            via=via,
            params={"operationId": str(operation), "byteSize": len(content), **expected},
            files=part(content),
        )

    def delete(self, file_id: str, *, operation: UUID, via: str | None = None) -> requests.Response:
        return self.request("DELETE", f"/files/{file_id}", via=via, params={"operationId": str(operation)})

    def renew(self, file_id: str, deadline: str | None, *, via: str | None = None) -> requests.Response:
        return self.request(
            "PUT", f"/files/{file_id}/retention", via=via, json={"retentionExpiresAt": deadline}
        )

    def grant(self, file_id: str, version_id: str, *, via: str | None = None) -> requests.Response:
        return self.request("POST", f"/files/{file_id}/versions/{version_id}/grants", via=via)

    def read(self, file_id: str, *, via: str | None = None) -> requests.Response:
        return self.request("GET", f"/files/{file_id}", via=via)

    def download(
        self, file_id: str, version_id: str | None = None, *, via: str | None = None
    ) -> requests.Response:
        query = {"versionId": version_id} if version_id else {}
        return self.request("GET", f"/files/{file_id}/content", via=via, params=query)


def exchange_token(url: str, credentials: Mapping[str, Any]) -> str:
    """Exchange the deployment's client id and secret for a Version access token."""
    deployment = credentials["deployment"]
    answer = requests.post(
        f"{url}/oauth/token",
        data={"grant_type": "client_credentials"},
        auth=(deployment["clientId"], deployment["clientSecret"]),
        timeout=TIMEOUT_SECONDS,
    )
    answer.raise_for_status()
    token: str = answer.json()["access_token"]
    return token


def open_link(
    link: str,
    *,
    via: str,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> requests.Response:
    """Open a share link without a credential, as its recipient does."""
    parts = urlsplit(link)
    return requests.get(f"{via}{parts.path}?{parts.query}", headers=headers, timeout=timeout_seconds)


def part(content: bytes) -> dict[str, tuple[str, io.BytesIO, str]]:
    """Return the one part of a multipart upload."""
    return {"file": ("report.bin", io.BytesIO(content), "application/octet-stream")}
