"""Receive one attachment from its source. The content is counted, hashed and checked while it streams.

The content must match the size and digest that the network announced. The source's Content-Length is compared only if
the network announced no size. The type is checked as soon as HEAD_BYTES have arrived, so no more is received from a
source that sends dangerous content.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from shared import failpoints
from shared.egress.errors import MediaTooLarge, SourceStatusError
from shared.egress.fetch import FetchedContent, FetchLimits, fetch
from shared.egress.policy import EgressPolicy
from shared.files.blobs.base import AtMost, Size
from shared.files.errors import ByteSizeMismatch, DigestMismatch
from shared.files.resources import ReceivedContent
from shared.files.staging import Sink
from shared.media.attachments import Attachment, Source
from shared.media.errors import MediaTypeMismatch, SourceGone, SourceMissing, SourceRefused
from shared.media.importing.content_signatures import HEAD_BYTES, sniff
from shared.media.importing.descriptions import read_media_type
from shared.media.importing.media_types import claim_of, essence_of, label, suffix_of

NAMELESS = "attachment"
_MISSING = 404
_GONE = frozenset({_MISSING, 410})
_REFUSED = frozenset({401, 403})


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """The inputs of one attempt to fetch an attachment."""

    source: Source = field(repr=False)
    attachment: Attachment
    policy: EgressPolicy
    limits: FetchLimits
    check_lease: Callable[[], None]
    """Raises LeaseLost if another worker has claimed the import."""
    is_from_network: bool
    """Whether a network announced the attachment. If so, missing content may still reach the network's servers."""

    @property
    def announced_bytes(self) -> int | None:
        """The size that the network stated at the fetch, or otherwise in the webhook; None if it stated no size."""
        stated = self.source.size_bytes
        return self.attachment.size_bytes if stated is None else stated

    @property
    def size(self) -> Size:
        """The size to reserve: the announced size, or the limit if no size was announced."""
        announced = self.announced_bytes
        return AtMost(self.limits.maximum_bytes) if announced is None else announced

    def receive(self, sink: Sink) -> ReceivedContent:
        """Fetch the content into the sink. The sink is opened when the source has responded with content.

        Raises the errors of `shared/egress/errors.py`, SourceGone, SourceMissing, SourceRefused, MediaTypeMismatch,
        ByteSizeMismatch, DigestMismatch, LeaseLost, BlobStoreUnavailable and StorageFull.
        """
        # Check before connecting, so that no request is sent for content that is announced as too large.
        if (self.announced_bytes or 0) > self.limits.maximum_bytes:
            raise MediaTooLarge
        self.check_lease()
        try:
            with fetch(
                self.source.url,
                policy=self.policy,
                limits=self.limits,
                headers=self.source.headers,
                trusted_hosts=self.source.trusted_hosts,
            ) as fetched:
                failpoints.hit("import.connected")
                return self._read(fetched, sink)
        except SourceStatusError as answer:
            if answer.status == _MISSING and self.is_from_network:
                raise SourceMissing from None
            if answer.status in _GONE:
                raise SourceGone from None
            # Report refused credentials only if headers were sent: without headers there were no credentials.
            if answer.status in _REFUSED and self.source.headers:
                raise SourceRefused from None
            raise

    def _read(self, fetched: FetchedContent, sink: Sink) -> ReceivedContent:
        if fetched.media_type in self.source.refused_media_types:
            raise MediaTypeMismatch("The source responded with a page of its own instead of the media.")
        if None not in (self.announced_bytes, fetched.content_length):
            self.require_size(fetched.content_length or 0)
        check = _ContentCheck(self, fetched.media_type)
        # Open the sink after the response, so that no staging space is used if the source refuses the request.
        sink.open()
        for chunk in fetched.chunks():
            check.take(chunk, sink)
            self.check_lease()
        return check.finish()

    def require_size(self, size_bytes: int) -> None:
        """Raise ByteSizeMismatch if the size differs from the announced size."""
        if self.announced_bytes not in (None, size_bytes):
            raise ByteSizeMismatch


class _ContentCheck:
    """Counts, hashes and checks content as it arrives."""

    def __init__(self, download: Download, served_type: str | None) -> None:
        self._download = download
        self._declared = download.attachment.media_type or claim_of(read_media_type(served_type))
        self._head = bytearray()
        self._media_type: str | None = None
        self._received_bytes = 0
        self._hash = hashlib.sha256()

    def take(self, chunk: bytes, sink: Sink) -> None:
        self._received_bytes += len(chunk)
        announced = self._download.announced_bytes
        # Raise at the first byte beyond the announced size, because the body may be endless.
        if announced is not None and self._received_bytes > announced:
            raise ByteSizeMismatch
        if len(self._head) < HEAD_BYTES:
            self._head += chunk[: HEAD_BYTES - len(self._head)]
            if len(self._head) == HEAD_BYTES:
                self._check_type()
        self._hash.update(chunk)
        sink.write(chunk)

    def finish(self) -> ReceivedContent:
        attachment, source = self._download.attachment, self._download.source
        self._download.require_size(self._received_bytes)
        digest = self._hash.digest()
        if {attachment.sha256, source.sha256} - {None, digest}:
            raise DigestMismatch("The content does not have the digest that was announced.")
        # Check the type now if the content was shorter than HEAD_BYTES and so is not checked yet.
        media_type = self._media_type or self._check_type()
        return ReceivedContent(
            file_name=attachment.file_name or NAMELESS + suffix_of(media_type),
            media_type=media_type,
            byte_size=self._received_bytes,
            sha256=digest,
        )

    def _check_type(self) -> str:
        head = bytes(self._head)
        sniffed = sniff(head)
        declared = essence_of(self._declared or "")
        refused = self._download.source.refused_media_types
        if sniffed is not None and sniffed.media_type in refused and sniffed.media_type != declared:
            raise MediaTypeMismatch("The source sent a page of its own instead of the media.")
        self._media_type = label(self._declared, head)
        return self._media_type
