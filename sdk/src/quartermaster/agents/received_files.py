"""Files in a message. A file's content is in the message itself, or is downloaded through a link of the service.

The agent requests no other URLs, to prevent SSRF: any author of a message can write a URL, and the agent may reach
hosts that the author cannot reach. The agent requests links at `base_url`, its own address of the service.
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
    """The file is not stored in the service, or the file is larger than `max_bytes`."""


@dataclass(frozen=True)
class File:
    """A file of a message. The attribute `url` is a secret, because the URL grants read access to its holder.

    The URL begins with the service's public address, `issuer`; the file is downloaded from `base_url`.
    """

    name: str
    media_type: str
    url: str | None = field(default=None, repr=False)
    content: bytes | None = field(default=None, repr=False)
    sha256: str | None = None
    base_url: str = ""
    issuer: str = ""

    def read(self, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """Return the file's content. Raises NotReadable, DigestMismatch, ConnectionFailed or ApiError."""
        if self.content is not None:
            return self.content
        link, received = self._link(), _BoundedContent(max_bytes)
        try:
            with httpx.stream(
                "GET", link, headers=_HEADERS, timeout=TIMEOUT_SECONDS, verify=trusted_authorities()
            ) as response:
                if not response.is_success:
                    raise read_error(response.status_code, response.headers, response.read())
                for piece in response.iter_bytes():
                    received.add(piece)
        except httpx.TransportError as error:
            raise ConnectionFailed(f"The download of the file failed: {type(error).__name__}") from None
        return self._checked(received.pieces)

    async def aread(self, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """Return the file's content without blocking the event loop. Raises the same errors as `read`."""
        if self.content is not None:
            return self.content
        link, received = self._link(), _BoundedContent(max_bytes)
        try:
            async with (
                httpx.AsyncClient(timeout=TIMEOUT_SECONDS, verify=trusted_authorities()) as http,
                http.stream("GET", link, headers=_HEADERS) as response,
            ):
                if not response.is_success:
                    raise read_error(response.status_code, response.headers, await response.aread())
                async for piece in response.aiter_bytes():
                    received.add(piece)
        except httpx.TransportError as error:
            raise ConnectionFailed(f"The download of the file failed: {type(error).__name__}") from None
        return self._checked(received.pieces)

    def _link(self) -> str:
        if self.url and self.base_url:
            for address in filter(None, (self.issuer, self.base_url)):
                # Compare with the slash: `https://service.example.attacker.example` also begins with the address.
                if self.url.startswith(f"{address}/files/"):
                    # httpx logs the URLs of requests, so redact them. Adding the same filter twice has no effect.
                    logging.getLogger("httpx").addFilter(_redact_grants)
                    return self.base_url + self.url.removeprefix(address)
        raise NotReadable(f"{self.name} is not stored in the service, so it is not downloaded; see its url.")

    def _checked(self, pieces: Iterable[bytes]) -> bytes:
        content = b"".join(pieces)
        if self.sha256 is not None and hashlib.sha256(content).hexdigest() != self.sha256:
            raise DigestMismatch(f"The content of {self.name} does not have the expected digest.")
        return content


class _BoundedContent:
    """The pieces of a download, up to a maximum size."""

    def __init__(self, max_bytes: int) -> None:
        self.pieces: list[bytes] = []
        self._left = max_bytes

    def add(self, piece: bytes) -> None:
        # Count the bytes while they arrive: the length that a response announces may be absent or wrong.
        self._left -= len(piece)
        if self._left < 0:
            raise NotReadable("The file is larger than max_bytes; pass a larger limit to read it.")
        self.pieces.append(piece)


def _redact_grants(record: logging.LogRecord) -> bool:
    """Remove the read grant from the URLs in a log record of httpx. Return True, because no record is dropped."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            at.copy_with(query=None) if isinstance(at, httpx.URL) and at.params.get("grant") else at
            for at in record.args
        )
    return True
