"""Attachments to push: content of every kind from sources of every kind, and the expected result of each."""

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.media.servers import slowly
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import (
    MediaSource,
    Respond,
    chunked,
    content,
    cut_off,
    in_turn,
    redirect,
    status,
)

SIZES = (1, 700, 4_096, 60_000, 400_000)
SIZE_WEIGHTS = (1, 2, 6, 4, 1)
MAX_MEDIA_BYTES = 1 << 20
PAGE = b"<!doctype html><html><body>Please log in</body></html>"
BAD_SHARE = 0.25


@dataclass(frozen=True, kw_only=True)
class Offer:
    """An attachment: its content, its source, and the error code with which its import must fail, if any."""

    attachment_id: str
    body: bytes = field(repr=False)
    media_type: str
    file_name: str
    url: str = ""
    announced: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None

    @property
    def sha256(self) -> str:
        """Return the digest of the content that must be stored."""
        return hashlib.sha256(self.body).hexdigest()

    def item(self) -> dict[str, Any]:
        """Return the JSON item of a push by URL."""
        described = {"attachmentId": self.attachment_id, "url": self.url, "fileName": self.file_name}
        return {**described, "mediaType": self.media_type, **self.announced}


class Offers:
    """Creates attachments, and serves them from a source."""

    def __init__(self, chance: random.Random, source: MediaSource) -> None:
        self._random = chance
        self._source = source

    def by_value(self) -> Offer:
        """Return an attachment that is pushed with its bytes."""
        body, media_type = self._content()
        return Offer(attachment_id=self.new_id(), body=body, media_type=media_type, file_name="note.bin")

    def by_url(self) -> Offer:
        """Return an attachment that the service must fetch."""
        body, media_type = self._content()
        make = self._random.choice(_BAD if self._random.random() < BAD_SHARE else _GOOD)
        answer, failure, announced = make(body, media_type, self._source)
        name = self.new_id()
        return Offer(
            attachment_id=name,
            body=body,
            media_type="image/png" if failure == "media_type_mismatch" else media_type,
            file_name=f"{name}.bin",
            url=self._source.serve(f"/{name}", answer),
            announced=announced,
            failure=failure,
        )

    def new_id(self) -> str:
        """Return an id in the form that networks use."""
        return f"{self._random.getrandbits(64):016x}"

    def _content(self) -> tuple[bytes, str]:
        body = self._random.randbytes(self._random.choices(SIZES, SIZE_WEIGHTS)[0])
        if self._random.random() < 0.4:
            return PNG.content + body, PNG.media_type
        return body, "application/octet-stream"


_Made = tuple[Respond, str | None, Mapping[str, Any]]
_Make = Callable[[bytes, str, MediaSource], _Made]


def _plain(body: bytes, media_type: str, _: MediaSource) -> _Made:
    return content(body, media_type), None, {}


def _announced(body: bytes, media_type: str, _: MediaSource) -> _Made:
    said = {"byteSize": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    return content(body, media_type), None, said


def _chunked(body: bytes, media_type: str, _: MediaSource) -> _Made:
    middle = len(body) // 2
    pieces = [piece for piece in (body[:middle], body[middle:]) if piece]
    return chunked(*pieces, media_type=media_type), None, {}


def _slow(body: bytes, media_type: str, _: MediaSource) -> _Made:
    return slowly(body, media_type), None, {}


def _busy_at_first(body: bytes, media_type: str, _: MediaSource) -> _Made:
    return in_turn(status(503), content(body, media_type)), None, {}


def _cut_off_at_first(body: bytes, media_type: str, _: MediaSource) -> _Made:
    return in_turn(cut_off(body[: len(body) // 2], len(body)), content(body, media_type)), None, {}


def _elsewhere(body: bytes, media_type: str, source: MediaSource) -> _Made:
    path = f"/moved/{hashlib.sha256(body).hexdigest()}"
    return redirect(source.serve(path, content(body, media_type))), None, {}


def _gone(_body: bytes, _media_type: str, _: MediaSource) -> _Made:
    return status(404), "media_gone", {}


def _a_page(_body: bytes, _media_type: str, _: MediaSource) -> _Made:
    return content(PAGE, "image/png"), "media_type_mismatch", {}


def _other_bytes(body: bytes, media_type: str, _: MediaSource) -> _Made:
    return content(body, media_type), "digest_mismatch", {"sha256": hashlib.sha256(body + b"x").hexdigest()}


def _another_size(body: bytes, media_type: str, _: MediaSource) -> _Made:
    return chunked(body, media_type=media_type), "byte_size_mismatch", {"byteSize": len(body) + 1}


def _too_large(_body: bytes, media_type: str, _: MediaSource) -> _Made:
    return content(bytes(MAX_MEDIA_BYTES + 1), media_type), "media_too_large", {}


def _in_circles(body: bytes, _media_type: str, source: MediaSource) -> _Made:
    path = f"/round/{hashlib.sha256(body).hexdigest()}"
    answer = redirect(source.url + path)
    source.serve(path, answer)
    return answer, "too_many_redirects", {}


_GOOD: tuple[_Make, ...] = (
    *(_plain, _announced, _chunked, _slow, _busy_at_first, _cut_off_at_first, _elsewhere),
)
_BAD: tuple[_Make, ...] = (_gone, _a_page, _other_bytes, _another_size, _too_large, _in_circles)
