"""The operations on files: upload, replace, renew, delete, download, list and share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from os import PathLike
from typing import IO, Any, Literal
from uuid import UUID, uuid4

import httpx

from quartermaster._async.bodies import async_open_content
from quartermaster._async.downloads import AsyncDownloads
from quartermaster._async.sender import AsyncSender
from quartermaster._async.uploads import AsyncUploads
from quartermaster._contents import AsyncSource, Progress
from quartermaster._wire import Value, identifier, query_of, quote_segment, write_timestamp
from quartermaster.resources import (
    DeletedFile,
    File,
    FileVersion,
    ListedLink,
    ReadLink,
    Reference,
    UploadedFile,
    read,
)

Id = UUID | str
Association = tuple[Literal["Task", "Conversation", "Message", "Schedule", "Resource"], str]
SHORTEST_TTL_MINUTES, LONGEST_TTL_MINUTES = 1, 1440
# The maximum page size of the service: large pages need few requests.
PAGE_LIMIT = 100


class AsyncFiles:
    """The files of the principal identity in the current context. Without a context, the files of the caller."""

    def __init__(self, sender: AsyncSender, auth: httpx.Auth) -> None:
        self._sender = sender
        self._auth = auth
        self._uploads = AsyncUploads(sender, auth)
        self._downloads = AsyncDownloads(sender, auth)

    async def upload(
        self,
        source: AsyncSource,
        *,
        file_name: str | None = None,
        media_type: str | None = None,
        retention_expires_at: datetime | None = None,
        association: Association | None = None,
        organization_id: Id | None = None,
        operation_id: Id | None = None,
        progress: Progress | None = None,
    ) -> UploadedFile:
        """Upload a new file. The source is a path, bytes, a binary file or an iterable of bytes.

        Without `retention_expires_at` the file never expires. All retries of an upload share one `operation_id`. To
        repeat an upload after a restart, pass the same `operation_id` again; above 16 MiB the upload then resumes.
        Raises ApiError, ConnectionFailed, ContentChanged or DigestMismatch.
        """
        kind, associated = association or (None, None)
        parameters: dict[str, Value] = {
            "operation_id": _operation(operation_id),
            "organization_id": identifier(organization_id) if organization_id is not None else None,
            "retention_expires_at": retention_expires_at,
            "association_kind": kind,
            "association_id": associated,
        }
        async with async_open_content(source, file_name, media_type) as content:
            return await self._uploads.store("POST", "/files/agent-artifacts", parameters, content, progress)

    async def replace(
        self,
        file_id: Id,
        source: AsyncSource,
        *,
        expected_version_id: Id,
        expected_revision: int,
        file_name: str | None = None,
        media_type: str | None = None,
        operation_id: Id | None = None,
        progress: Progress | None = None,
    ) -> UploadedFile:
        """Store a new version of a file. Raises PreconditionFailed if another version than expected is current."""
        parameters: dict[str, Value] = {
            "operation_id": _operation(operation_id),
            "expected_version_id": identifier(expected_version_id),
            "expected_revision": expected_revision,
        }
        async with async_open_content(source, file_name, media_type) as content:
            return await self._uploads.store("PUT", _path(file_id), parameters, content, progress)

    async def get(self, file_id: Id) -> File:
        """Return a file's metadata. Expired and deleted files keep their metadata."""
        return read(File, await self._request_json("GET", _path(file_id)))

    async def renew(self, file_id: Id, until: datetime | None) -> File:
        """Set a file's retention to a later time with a time zone. With None, the file never expires."""
        deadline = None if until is None else write_timestamp(until)
        body = {"retentionExpiresAt": deadline}
        return read(File, await self._request_json("PUT", _path(file_id, "retention"), json=body))

    async def delete(self, file_id: Id, *, operation_id: Id | None = None) -> DeletedFile:
        """Delete a file and all its versions. Raises Conflict if a resource refers to it."""
        parameters: dict[str, Value] = {"operation_id": _operation(operation_id)}
        return read(DeletedFile, await self._request_json("DELETE", _path(file_id), parameters))

    async def list(
        self,
        *,
        name: str | None = None,
        media_type: str | None = None,
        purpose: Literal["AgentArtifact", "MessagingMedia"] | None = None,
        availability: Literal["Pending", "Available", "Expired", "Deleted"] | None = None,
        owner_id: Id | None = None,
        created_from: datetime | None = None,
        created_to: datetime | None = None,
    ) -> AsyncIterator[File]:
        """Yield files, newest first. The client requests each page when the caller reaches it.

        `name` matches the beginnings of words in the file name. `media_type` is one type, or a range such as `image/*`.
        `created_from` is inclusive and `created_to` exclusive; both need a time zone.
        """
        filters: dict[str, Value] = {
            "name": name,
            "media_type": media_type,
            "purpose": purpose,
            "availability": availability,
            "owner_id": identifier(owner_id) if owner_id is not None else None,
            "created_from": created_from,
            "created_to": created_to,
        }
        async for body in self._pages("/files", "files", filters):
            yield read(File, body)

    async def versions(self, file_id: Id) -> tuple[FileVersion, ...]:
        """Return a file's versions, newest first."""
        listed = self._pages(_path(file_id, "versions"), "versions", {})
        return tuple([read(FileVersion, at) async for at in listed])

    async def references(self, file_id: Id) -> tuple[Reference, ...]:
        """Return the references to a file, oldest first."""
        body = await self._request_json("GET", _path(file_id, "references"))
        return tuple(read(Reference, at) for at in body["references"])

    async def add_reference(self, file_id: Id, association: Association) -> Reference:
        """Add a reference from a resource to a file, which prevents the file's deletion."""
        return read(Reference, await self._request_json("PUT", _path(file_id, "references", *association)))

    async def remove_reference(self, file_id: Id, association: Association) -> None:
        """Remove a reference to a file. Raises NotFound if there is none."""
        # Use remove(): if a response was lost, the retry finds no reference, and remove() counts that as success.
        url = self._sender.url(_path(file_id, "references", *association))
        await self._sender.remove(lambda: self._sender.http.build_request("DELETE", url), self._auth)

    async def download(
        self,
        file_id: Id,
        to: str | PathLike[str] | IO[bytes],
        *,
        version_id: Id | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Download content to a path or into a file, and return its size in bytes.

        The file at a path is replaced only after all content has arrived and has the expected digest. The download
        resumes after a lost connection. Raises ApiError, ConnectionFailed or DigestMismatch.
        """
        version = None if version_id is None else identifier(version_id)
        return await self._downloads.download(_path(file_id, "content"), to, version, progress)

    async def create_read_link(self, file_id: Id, version_id: Id, *, ttl_minutes: int = 60) -> ReadLink:
        """Create a link to one exact version. The link is valid for 1 to 1440 minutes or until the file expires."""
        path = _path(file_id, "versions", str(identifier(version_id)), "grants")
        parameters: dict[str, Value] = {"ttl_seconds": _seconds(ttl_minutes)}
        # Not repeatable: after a lost response, a retry would create a second link. The caller would not know the
        # first link and could not revoke it.
        return read(ReadLink, await self._request_json("POST", path, parameters, is_repeatable=False))

    async def links(self, file_id: Id) -> AsyncIterator[ListedLink]:
        """Yield the links of a file, newest first, without their URLs."""
        async for body in self._pages(_path(file_id, "grants"), "grants", {}):
            yield read(ListedLink, body)

    async def revoke_link(self, file_id: Id, link_id: Id) -> ListedLink:
        """Revoke a link with immediate effect."""
        body = await self._request_json("DELETE", _path(file_id, "grants", str(identifier(link_id))))
        return read(ListedLink, body)

    async def _pages(
        self, path: str, members: str, parameters: Mapping[str, Value]
    ) -> AsyncIterator[Mapping[str, Any]]:
        cursor: str | None = None
        while True:
            body = await self._request_json(
                "GET", path, {**parameters, "cursor": cursor, "limit": PAGE_LIMIT}
            )
            for member in body[members]:
                yield member
            cursor = body["nextCursor"]
            if cursor is None:
                return

    async def _request_json(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Value] | None = None,
        **options: Any,
    ) -> Mapping[str, Any]:
        response = await self._request(method, path, parameters, **options)
        body: Mapping[str, Any] = response.json()
        return body

    async def _request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Value] | None = None,
        *,
        json: Mapping[str, Any] | None = None,
        is_repeatable: bool = True,
    ) -> httpx.Response:
        url, query = self._sender.url(path), query_of(parameters or {})

        def make_request() -> httpx.Request:
            return self._sender.http.build_request(method, url, params=query, json=json)

        return await self._sender.send(make_request, self._auth, is_repeatable=is_repeatable)


def _path(file_id: Id, *rest: str) -> str:
    return "/".join(("/files", str(identifier(file_id)), *(quote_segment(at) for at in rest)))


def _operation(operation_id: Id | None) -> UUID:
    # All attempts of an operation share this id, because the service recognizes a retry by its operation id.
    return uuid4() if operation_id is None else identifier(operation_id)


def _seconds(ttl_minutes: int) -> int:
    # Compare the type: isinstance() would accept True, because bool is a subclass of int.
    if type(ttl_minutes) is not int or not SHORTEST_TTL_MINUTES <= ttl_minutes <= LONGEST_TTL_MINUTES:
        raise ValueError(
            f"ttl_minutes must be a whole number from {SHORTEST_TTL_MINUTES} to {LONGEST_TTL_MINUTES}, "
            f"not {ttl_minutes!r}."
        )
    return ttl_minutes * 60
