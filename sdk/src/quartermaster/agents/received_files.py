"""Files that a message brings: read by the link that came with them, or as they are.

Only links of the service are followed, and only to where the agent itself reaches it. Any other address was written by
somebody unknown, and the agent may stand where it reaches more than that somebody does.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

import httpx

from quartermaster._authorities import trusted_authorities
from quartermaster.errors import ConnectionFailed, DigestMismatch, QuartermasterError, read_error

MAX_READ_BYTES = 64 << 20
TIMEOUT_SECONDS = 60.0
_HEADERS = {"Accept-Encoding": "identity"}


class NotReadable(QuartermasterError):
    """A file lies elsewhere than in the service, or is larger than it may be."""


@dataclass(frozen=True)
class File:
    """A file of a message; `url` is a secret: it opens the file to its holder.

    It lies below the service's public address: `issuer` where that is another one than `base_url`, by which it is read.
    """

    name: str
    media_type: str
    url: str | None = field(default=None, repr=False)
    content: bytes | None = field(default=None, repr=False)
    sha256: str | None = None
    base_url: str = ""
    issuer: str = ""

    def read(self, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """Read the content; raises NotReadable, DigestMismatch, ConnectionFailed and ApiError."""
        if self.content is not None:
            return self.content
        link, arrived = self._link(), _Arrived(max_bytes)
        try:
            with httpx.stream(
                "GET", link, headers=_HEADERS, timeout=TIMEOUT_SECONDS, verify=trusted_authorities()
            ) as response:
                if not response.is_success:
                    raise read_error(response.status_code, response.headers, response.read())
                for piece in response.iter_bytes():
                    arrived.add(piece)
        except httpx.TransportError as error:
            raise ConnectionFailed(f"The file cannot be read: {type(error).__name__}") from None
        return self._checked(arrived.pieces)

    async def aread(self, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """Read the content without holding up the event loop; raises as `read` does."""
        if self.content is not None:
            return self.content
        link, arrived = self._link(), _Arrived(max_bytes)
        try:
            async with (
                httpx.AsyncClient(timeout=TIMEOUT_SECONDS, verify=trusted_authorities()) as http,
                http.stream("GET", link, headers=_HEADERS) as response,
            ):
                if not response.is_success:
                    raise read_error(response.status_code, response.headers, await response.aread())
                async for piece in response.aiter_bytes():
                    arrived.add(piece)
        except httpx.TransportError as error:
            raise ConnectionFailed(f"The file cannot be read: {type(error).__name__}") from None
        return self._checked(arrived.pieces)

    def _link(self) -> str:
        if self.url and self.base_url:
            for address in filter(None, (self.issuer, self.base_url)):
                if self.url.startswith(f"{address}/files/"):
                    logging.getLogger("httpx").addFilter(_without_grants)
                    return self.base_url + self.url.removeprefix(address)
        raise NotReadable("The file lies elsewhere than in the service; its url says where.")

    def _checked(self, pieces: Iterable[bytes]) -> bytes:
        content = b"".join(pieces)
        if self.sha256 is not None and hashlib.sha256(content).hexdigest() != self.sha256:
            raise DigestMismatch(f"The content of {self.name} does not have its digest.")
        return content


class _Arrived:
    """The pieces of a content, up to a bound."""

    def __init__(self, max_bytes: int) -> None:
        self.pieces: list[bytes] = []
        self._left = max_bytes

    def add(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise NotReadable("The file is larger than it may be; see max_bytes.")
        self.pieces.append(piece)


def _without_grants(record: logging.LogRecord) -> bool:
    """Take the grant out of the addresses that httpx logs."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            at.copy_with(query=None) if isinstance(at, httpx.URL) and at.params.get("grant") else at
            for at in record.args
        )
    return True
