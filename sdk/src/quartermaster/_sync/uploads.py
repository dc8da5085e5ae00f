"""Store content: in one request, or resumably in several where it is large or the line is slow.

Resumable uploads follow docs/specification/files.md#resumable of the service: begun without content, continued where
the service says, and finished under the operation id of the whole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from quartermaster._sync.bodies import Body
from quartermaster._sync.sending import Sender
from quartermaster._concurrency import sleep
from quartermaster._contents import Content, Progress
from quartermaster._multipart import Frame, digest_of, file_name_parameter
from quartermaster._retries import UPLOAD_TIMEOUT, Unanswered, pause_before_retry
from quartermaster._tokens import UPLOADS_PATH
from quartermaster._wire import Value, identifier, query_of
from quartermaster.errors import ApiError, ConnectionFailed, DigestMismatch
from quartermaster.resources import UploadedFile, read

RESUMABLE_ABOVE_BYTES = 16 << 20
SMALLEST_STEP_BYTES, FIRST_STEP_BYTES, LARGEST_STEP_BYTES = 256 << 10, 1 << 20, 16 << 20
STEP_SECONDS = 5.0
# The whole is hashed and copied once more before the last answer.
FINISHING_BYTES_PER_SECOND = 20 << 20
_MISMATCH = "mismatching_upload_offset"


@dataclass(frozen=True)
class _Task:
    """What is to be stored, where, and who wants to know how far it is."""

    method: str
    path: str
    query: Mapping[str, str]
    content: Content
    progress: Progress | None


class Uploads:
    """Stores content with the caller's credentials."""

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
        """Store content by one of the two routes that take it. Raises what an upload raises."""
        query = query_of({**parameters, "byte_size": content.size_bytes})
        task = _Task(method, path, query, content, progress)
        stored = read(UploadedFile, (self._send(task)).json())
        if stored.metadata.content_sha256 != content.sha256.hex():
            raise DigestMismatch("The service stored other content than was sent.")
        return stored

    def _send(self, task: _Task) -> httpx.Response:
        if task.content.size_bytes <= RESUMABLE_ABOVE_BYTES:
            try:
                return self._send_whole(task)
            except ApiError as error:
                if error.code != UPLOAD_TIMEOUT:
                    raise
        return self._send_resumably(task)

    def _send_whole(self, task: _Task) -> httpx.Response:
        content, frame = task.content, Frame(task.content)
        headers = {"Content-Type": frame.content_type, "Content-Length": str(frame.size_bytes)}

        def make_request() -> httpx.Request:
            request = self._request(task.method, task.path, headers, params=task.query)
            request.stream = Body(
                content, task.progress, stop=content.size_bytes, head=frame.head, tail=frame.tail
            )
            return request

        return self._sender.send(make_request, self._auth, is_repeatable=True)

    def _send_resumably(self, task: _Task) -> httpx.Response:
        begun = self._begin(task)
        if _is_complete(begun):
            return begun
        path = f"{UPLOADS_PATH}{identifier(begun.headers['Location'].rpartition('/')[2])}"
        offset, step, retries = int(begun.headers["Upload-Offset"]), FIRST_STEP_BYTES, 0
        while True:
            began_at = time.monotonic()
            outcome = self._attempt_step(task, path, offset, step)
            if isinstance(outcome, httpx.Response):
                if _is_complete(outcome):
                    return outcome
                offset, retries = int(outcome.headers["Upload-Offset"]), 0
                step = _step_after(step, time.monotonic() - began_at)
                continue
            self._pause(outcome, retries)
            at = self._ask(path)
            if _is_complete(at):
                return self._begin(task)  # Its operation gives the result again.
            now, step = int(at.headers["Upload-Offset"]), max(SMALLEST_STEP_BYTES, step // 2)
            offset, retries = now, 0 if now > offset else retries + 1

    def _begin(self, task: _Task) -> httpx.Response:
        headers = {
            "Upload-Complete": "?0",
            "Upload-Length": str(task.content.size_bytes),
            "Content-Type": task.content.media_type,
            "Content-Disposition": f"attachment; {file_name_parameter(task.content)}",
            "Repr-Digest": digest_of(task.content),
            "Content-Length": "0",
        }

        def make_request() -> httpx.Request:
            return self._request(task.method, task.path, headers, params=task.query)

        return self._sender.send(make_request, self._auth, is_repeatable=True)

    def _attempt_step(
        self, task: _Task, path: str, offset: int, step: int
    ) -> httpx.Response | ApiError | Unanswered:
        content = task.content
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
            timeout["read"] = timeout["read"] and timeout["read"] + seconds
        request.stream = Body(content, task.progress, start=offset, stop=stop)
        return self._sender.attempt(request, self._auth)

    def _pause(self, failure: ApiError | Unanswered, retries: int) -> None:
        """Wait before the service is asked for the offset; raise the failure when it lasts."""
        if isinstance(failure, ApiError) and failure.code in (_MISMATCH, UPLOAD_TIMEOUT):
            failure = Unanswered(str(failure), was_sent=True)
        pause = pause_before_retry(
            failure, retries_so_far=retries, max_retries=self._sender.settings.max_retries, is_repeatable=True
        )
        if pause is None:
            raise failure if isinstance(failure, ApiError) else ConnectionFailed(failure.reason)
        sleep(pause)

    def _ask(self, path: str) -> httpx.Response:
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


def _step_after(step: int, seconds: float) -> int:
    """Choose a step that takes some seconds: short enough to lose little, and long enough to lose no time."""
    wanted = int(step * STEP_SECONDS / max(seconds, 0.001))
    return max(SMALLEST_STEP_BYTES, min(wanted, LARGEST_STEP_BYTES))
