"""The multipart body of an upload (RFC 7578). The body has a single part with the name `file`."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from urllib.parse import quote

from quartermaster._contents import Content, Progress


@dataclass(frozen=True)
class FramedContent:
    """The body of one request: the bytes `head`, then the content from `start` to `stop`, then the bytes `tail`."""

    content: Content
    progress: Progress | None
    stop: int
    start: int = 0
    head: bytes = b""
    tail: bytes = b""

    def report_progress(self, sent_bytes: int) -> None:
        """Call the caller's progress function, if there is one."""
        if self.progress is not None:
            self.progress(sent_bytes, self.content.size_bytes)


class Frame:
    """The bytes of a multipart body before and after the content. So the total size is known in advance."""

    def __init__(self, content: Content) -> None:
        # Use a random boundary: the content must not contain the boundary, so its author must not be able to guess it.
        boundary = secrets.token_hex(16)
        # Send the digest, so that the service rejects content that was damaged in transit.
        lines = (
            f"--{boundary}",
            f'Content-Disposition: form-data; name="file"; {file_name_parameter(content)}',
            f"Content-Type: {content.media_type}",
            f"Content-Digest: {digest_of(content)}",
        )
        self.content_type = f"multipart/form-data; boundary={boundary}"
        self.head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        self.tail = f"\r\n--{boundary}--\r\n".encode()
        self.size_bytes = len(self.head) + content.size_bytes + len(self.tail)


def file_name_parameter(content: Content) -> str:
    """Return the file name as an extended header parameter, which can encode any character (RFC 8187)."""
    return f"filename*=UTF-8''{quote(content.file_name.encode('utf-8', 'replace'), safe='')}"


def digest_of(content: Content) -> str:
    """Return the value of a digest field for the content (RFC 9530)."""
    return f"sha-256=:{base64.b64encode(content.sha256).decode()}:"
