"""What an inbound attachment is, before and while it is fetched: the types that networks and imports share.

The front reads a webhook into attachments and keeps each as a row; a worker later asks the network where the bytes
are (`Source`). An attachment holds nothing secret: credentials are looked up at their use, pushed headers are kept
encrypted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """One attachment of one message, as its network or distribution describes it."""

    message_id: str
    attachment_id: str
    location: Mapping[str, str]
    """What the network needs to find the bytes again, such as `url` or `fileId`; its own keys, no secrets."""
    file_name: str | None = None
    media_type: str | None = None
    size_bytes: int | None = None
    sha256: bytes | None = None
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an attachment's bytes are right now, and how to ask for them."""

    url: str = field(repr=False)
    """May hold a token, as Telegram's does: never logged."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent to the URL's own host and to `trusted_hosts`, and nowhere else."""
    trusted_hosts: frozenset[str] = frozenset()
    """Hosts, or with a leading dot whole domains, that may see the headers after a redirect."""
    size_bytes: int | None = None
    sha256: bytes | None = None
    refused_media_types: frozenset[str] = frozenset()
    """Types that mean the network answered something else, such as Slack's login page."""
