"""The frame around an upload's one part, `file` (RFC 7578)."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from urllib.parse import quote

from quartermaster._contents import Content, Progress


@dataclass(frozen=True)
class FramedContent:
    """What one request sends of the content, from `start` to `stop`, and what stands before and after it."""

    content: Content
    progress: Progress | None
    stop: int
    start: int = 0
    head: bytes = b""
    tail: bytes = b""

    def tell(self, sent_bytes: int) -> None:
        """Say how much of the content is sent."""
        if self.progress is not None:
            self.progress(sent_bytes, self.content.size_bytes)


class Frame:
    """What stands before and after the content; its size is known before anything is read."""

    def __init__(self, content: Content) -> None:
        boundary = secrets.token_hex(16)
        # The digest of the part lets the service refuse content that was damaged on its way, and store nothing.
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
    """Write a file name, whatever characters it has, as an extended parameter (RFC 8187)."""
    return f"filename*=UTF-8''{quote(content.file_name.encode('utf-8', 'replace'), safe='')}"


def digest_of(content: Content) -> str:
    """Write the digest of the content (RFC 9530)."""
    return f"sha-256=:{base64.b64encode(content.sha256).decode()}:"
