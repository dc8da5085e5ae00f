"""The description of an inbound attachment and of its source: types that networks and imports share.

The web process parses a webhook into attachments and stores each attachment as a row. A worker later asks the network
where the bytes are (`Source`). An attachment contains no secret: credentials are read when a worker uses them, and the
headers of a push are stored encrypted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """One attachment of a message, as its network or distribution describes it."""

    message_id: str
    attachment_id: str
    location: Mapping[str, str]
    """The values by which the network finds the bytes later, such as `url` or `fileId`. They contain no secret."""
    file_name: str | None = None
    media_type: str | None = None
    size_bytes: int | None = None
    sha256: bytes | None = None
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an attachment's bytes are now, and how to request them."""

    url: str = field(repr=False)
    """The URL of the bytes. It may contain a token, as Telegram's URLs do, so it is never logged."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers that are sent only to the URL's own host and to `trusted_hosts`."""
    trusted_hosts: frozenset[str] = frozenset()
    """Hosts that may receive the headers after a redirect. A leading dot includes all subdomains."""
    size_bytes: int | None = None
    sha256: bytes | None = None
    refused_media_types: frozenset[str] = frozenset()
    """Media types that indicate a page of the network instead of the media, such as Slack's login page."""
