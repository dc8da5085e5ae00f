"""An inbound attachment before and while it is fetched: the types that networks and imports share.

The web process reads a webhook into attachments and stores each as a row. A worker later asks the network where the
bytes are (`Source`). An attachment holds no secret: credentials are read when they are used, and pushed headers are
stored encrypted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """One attachment of a message, as its network or distribution describes it."""

    message_id: str
    attachment_id: str
    location: Mapping[str, str]
    """What the network needs to find the bytes again, such as `url` or `fileId`. No secrets."""
    file_name: str | None = None
    media_type: str | None = None
    size_bytes: int | None = None
    sha256: bytes | None = None
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an attachment's bytes are now, and how to request them."""

    url: str = field(repr=False)
    """May contain a token, as Telegram's does: never logged."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent to the URL's own host and to `trusted_hosts` only."""
    trusted_hosts: frozenset[str] = frozenset()
    """Hosts that may receive the headers after a redirect; a leading dot covers a whole domain."""
    size_bytes: int | None = None
    sha256: bytes | None = None
    refused_media_types: frozenset[str] = frozenset()
    """Types that indicate a page of the network's own, such as Slack's login page."""
