"""Upload content in one request, or as a resumable upload if the content is large or the connection is slow.

Resumable uploads follow `docs/specification/files.md#resumable` of the service. The first request creates an upload
without content. Each further request appends content at the offset that the service reports. All requests of an upload
have the same operation id.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from quartermaster._sync.bodies import Body
from quartermaster._sync.sender import Sender
from quartermaster._concurrency import sleep
from quartermaster._contents import Content, Progress
from quartermaster._multipart import Frame, digest_of, file_name_parameter
from quartermaster._retries import UPLOAD_TIMEOUT, RequestFailure, retry_delay_seconds
from quartermaster._tokens import UPLOADS_PATH
from quartermaster._wire import Value, identifier, query_of
from quartermaster.errors import ApiError, ConnectionFailed, DigestMismatch
from quartermaster.resources import UploadedFile, read

# If the connection of a one-request upload is lost, the upload starts again. Up to this size, starting again costs less
# than the additional requests of a resumable upload.
RESUMABLE_ABOVE_BYTES = 16 << 20
SMALLEST_STEP_BYTES, FIRST_STEP_BYTES, LARGEST_STEP_BYTES = 256 << 10, 1 << 20, 16 << 20
STEP_SECONDS = 5.0
# The service hashes and copies the whole content before its last response, so the timeout grows with the size.
FINISHING_BYTES_PER_SECOND = 20 << 20
_MISMATCH = "mismatching_upload_offset"


@dataclass(frozen=True)
class _Upload:
    """The parameters of one upload: the content, the route that stores the content, and the progress function."""

    method: str
    path: str
    query: Mapping[str, str]
    content: Content
    progress: Progress | None


class Uploads:
    """Uploads content with the caller's credential."""

    def __init__(self, sender: Sender, auth: httpx.Auth) -> None:
        self._sender = sender
        self._auth = auth

    def store(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Value],
        content: Content,
        progress: Progress | None,
    ) -> UploadedFile:
        """Upload content to the route that creates a file or to the route that replaces a file.

        Raises ApiError, ConnectionFailed, ContentChanged or DigestMismatch.
        """
        query = query_of({**parameters, "byte_size": content.size_bytes})
        upload = _Upload(method, path, query, content, progress)
        stored = read(UploadedFile, (self._send(upload)).json())
        if stored.metadata.content_sha256 != content.sha256.hex():
            raise DigestMismatch("The service stored content with another digest than the one that was sent.")
        return stored

    def _send(self, upload: _Upload) -> httpx.Response:
        if upload.content.size_bytes <= RESUMABLE_ABOVE_BYTES:
            try:
                return self._send_whole(upload)
            except ApiError as error:
                # The connection is too slow for one request: continue with a resumable upload, in small steps.
                if error.code != UPLOAD_TIMEOUT:
                    raise
        return self._send_resumably(upload)

    def _send_whole(self, upload: _Upload) -> httpx.Response:
        content, frame = upload.content, Frame(upload.content)
        headers = {"Content-Type": frame.content_type, "Content-Length": str(frame.size_bytes)}

        def make_request() -> httpx.Request:
            request = self._request(upload.method, upload.path, headers, params=upload.query)
            request.stream = Body(
                content, upload.progress, stop=content.size_bytes, head=frame.head, tail=frame.tail
            )
            return request

        return self._sender.send(make_request, self._auth, is_repeatable=True)

    def _send_resumably(self, upload: _Upload) -> httpx.Response:
        created = self._create(upload)
        # Return the result: an earlier call with the same operation id has stored the file already.
        if _is_complete(created):
            return created
        # Use only the id from the Location header, so that the credential is sent only to the configured address.
        path = f"{UPLOADS_PATH}{identifier(created.headers['Location'].rpartition('/')[2])}"
        offset, step, retries = int(created.headers["Upload-Offset"]), FIRST_STEP_BYTES, 0
        while True:
            began_at = time.monotonic()
            outcome = self._attempt_step(upload, path, offset, step)
            if isinstance(outcome, httpx.Response):
                if _is_complete(outcome):
                    return outcome
                offset, retries = int(outcome.headers["Upload-Offset"]), 0
                step = _next_step_bytes(step, time.monotonic() - began_at)
                continue
            # Do not send a failed step again unchanged: only the service knows how many of its bytes arrived.
            self._pause(outcome, retries)
            at = self._get_offset(path)
            if _is_complete(at):
                return self._create(upload)  # The same operation id returns the stored result.
            # Halve the step size after each failure: on a bad connection, a failed small step loses fewer bytes.
            new_offset, step = int(at.headers["Upload-Offset"]), max(SMALLEST_STEP_BYTES, step // 2)
            offset, retries = new_offset, 0 if new_offset > offset else retries + 1

    def _create(self, upload: _Upload) -> httpx.Response:
        headers = {
            "Upload-Complete": "?0",
            "Upload-Length": str(upload.content.size_bytes),
            "Content-Type": upload.content.media_type,
            "Content-Disposition": f"attachment; {file_name_parameter(upload.content)}",
            "Repr-Digest": digest_of(upload.content),
            "Content-Length": "0",
        }

        def make_request() -> httpx.Request:
            return self._request(upload.method, upload.path, headers, params=upload.query)

        return self._sender.send(make_request, self._auth, is_repeatable=True)

    def _attempt_step(
        self, upload: _Upload, path: str, offset: int, step: int
    ) -> httpx.Response | ApiError | RequestFailure:
        content = upload.content
        stop = min(offset + step, content.size_bytes)
        is_last = stop == content.size_bytes
        headers = {
            "Upload-Offset": str(offset),
            "Upload-Complete": "?1" if is_last else "?0",
            "Content-Type": "application/partial-upload",
            "Content-Length": str(stop - offset),
        }
        request = self._request("PATCH", path, headers)
        if is_last:
            seconds = content.size_bytes / FINISHING_BYTES_PER_SECOND
            timeout = request.extensions["timeout"]
            # Keep a timeout of None or 0: the caller has disabled the timeout.
            timeout["read"] = timeout["read"] and timeout["read"] + seconds
        request.stream = Body(content, upload.progress, start=offset, stop=stop)
        return self._sender.send_once(request, self._auth)

    def _pause(self, failure: ApiError | RequestFailure, retries: int) -> None:
        """Wait before the next request for the upload's offset. Raises the failure if a retry is not allowed."""
        # Both codes mean that the offset or the step size is wrong, and the next step corrects it. So wait and
        # continue, although the retry rules treat both codes as final.
        if isinstance(failure, ApiError) and failure.code in (_MISMATCH, UPLOAD_TIMEOUT):
            failure = RequestFailure(str(failure), was_sent=True)
        pause = retry_delay_seconds(
            failure, retries_so_far=retries, max_retries=self._sender.settings.max_retries, is_repeatable=True
        )
        if pause is None:
            raise failure if isinstance(failure, ApiError) else ConnectionFailed(failure.reason)
        sleep(pause)

    def _get_offset(self, path: str) -> httpx.Response:
        return self._sender.send(
            lambda: self._request("HEAD", path, {}), self._auth, is_repeatable=True
        )

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], params: Mapping[str, str] | None = None
    ) -> httpx.Request:
        url = self._sender.url(path)
        return self._sender.http.build_request(method, url, params=params, headers=headers)


def _is_complete(response: httpx.Response) -> bool:
    return bool(response.headers.get("Upload-Complete") == "?1")


def _next_step_bytes(step: int, seconds: float) -> int:
    """Return a step size that takes about five seconds: a lost step costs little, and few requests are needed."""
    wanted = int(step * STEP_SECONDS / max(seconds, 0.001))
    return max(SMALLEST_STEP_BYTES, min(wanted, LARGEST_STEP_BYTES))
