"""The multipart frame of an upload with its single part, `file` (RFC 7578)."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from urllib.parse import quote

from quartermaster._contents import Content, Progress


@dataclass(frozen=True)
class FramedContent:
    """The body of one request: the content from `start` to `stop`, between `head` and `tail`."""

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
    """The bytes before and after the content. The total size is known before the content is read."""

    def __init__(self, content: Content) -> None:
        # Random: the content is not searched for the boundary, and its author must not be able to guess it.
        boundary = secrets.token_hex(16)
        # With the digest the service rejects content that was damaged in transit, instead of storing it.
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
    """Return the file name as an extended parameter, which may have any characters (RFC 8187)."""
    return f"filename*=UTF-8''{quote(content.file_name.encode('utf-8', 'replace'), safe='')}"


def digest_of(content: Content) -> str:
    """Return the value of a digest field for the content (RFC 9530)."""
    return f"sha-256=:{base64.b64encode(content.sha256).decode()}:"
