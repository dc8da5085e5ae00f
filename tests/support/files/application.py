"""A small WSGI application that receives uploads and serves one file, to be run under a real gunicorn.

Settings by environment: `CONTENT_FILE`, a file of bytes; `ROOM`, how many bodies are received at once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from uuid import UUID
from wsgiref.types import StartResponse, WSGIEnvironment

from flask import Response

from shared.errors import DomainError
from shared.fairness.admission import Pool
from shared.files.blobs.chunks import ChunkChecksums
from shared.files.resources import Version
from shared.files.staging import DiscardSink
from web.error_responses.status_codes import STATUSES
from web.files.content_response import content_response
from web.files.presentation import Presentation
from web.http.multipart import receive_file_part
from web.http.receive_deadlines import BodyReceiver
from web.http.wsgi_middleware import BODY_READ, wrap_application

room = Pool("uploads", int(os.environ.get("ROOM", "4")), max_wait_seconds=0)
receptions = BodyReceiver(room, grace_seconds=0.5)
content_path = Path(os.environ.get("CONTENT_FILE", "/dev/null"))


class LocalBlob:
    """An open local file, as a blob store returns it."""

    fixed_path: str | None = None

    def __init__(self) -> None:
        self.file: FileIO | None = FileIO(content_path)

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        assert self.file is not None
        self.file.seek(start)
        yield self.file.read(stop - start)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def __enter__(self) -> LocalBlob:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class RemoteBlob(LocalBlob):
    """The same bytes as if they came over the network."""

    def __init__(self) -> None:
        super().__init__()
        self._hidden, self.file = self.file, None

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        assert self._hidden is not None
        self._hidden.seek(start)
        while start < stop:
            piece = self._hidden.read(min(1000, stop - start))
            start += len(piece)
            yield piece

    def close(self) -> None:
        assert self._hidden is not None
        self._hidden.close()


def respond(environ: WSGIEnvironment) -> Response:
    match environ["PATH_INFO"]:
        case "/upload":
            byte_size = int(environ["QUERY_STRING"]) if environ["QUERY_STRING"] else None
            with receptions.admit(environ) as body:
                part = receive_file_part(
                    body,
                    environ["CONTENT_TYPE"],
                    byte_size=byte_size,
                    maximum_bytes=1 << 40,
                    sink=DiscardSink(),
                )
            return Response(json.dumps({"name": part.file_name, "sha256": part.sha256.hex()}), 201)
        case "/local" | "/remote" as path:
            blob = LocalBlob() if path == "/local" else RemoteBlob()
            return content_response(environ, version(), blob, presentation=Presentation.PRIVATE)
        case "/checked":
            return content_response(
                environ,
                version(),
                LocalBlob(),
                presentation=Presentation.PRIVATE,
                checksums=checksums_of_what_was_stored(),
            )
        case _:
            return Response("well")


def checksums_of_what_was_stored() -> bytes:
    """Return the checksums of the content before the byte at `ROTTEN_AT` changed."""
    content = bytearray(content_path.read_bytes())
    content[int(os.environ["ROTTEN_AT"])] ^= 1
    checksums = ChunkChecksums()
    checksums.update(bytes(content))
    return checksums.finish()


def version() -> Version:
    content = content_path.read_bytes()
    return Version(
        id=UUID(int=1),
        file_id=UUID(int=2),
        revision=1,
        file_name="content.bin",
        media_type="application/octet-stream",
        byte_size=len(content),
        content_sha256=hashlib.sha256(content).digest(),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    try:
        response = respond(environ)
    except DomainError as error:
        response = Response(json.dumps({"code": error.code}), STATUSES[error.kind])
        if error.retry_after_seconds:
            response.headers["Retry-After"] = str(error.retry_after_seconds)
        if environ.get("CONTENT_LENGTH") and not environ.get(BODY_READ):
            response.headers["Connection"] = "close"
    return response(environ, start_response)


application = wrap_application(answer)
