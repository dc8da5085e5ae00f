"""The background work of the media domain; its rows are also looked for on the schedule, without any message."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from shared.jobs import MEDIA, RETENTION, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchMedia(Job):
    """An attachment waits to be fetched.

    Each import has a message of its own, so that as many threads wake up as there are attachments; a handler takes
    whatever is due.
    """

    kind = "media.fetch"
    queue = MEDIA
    import_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchDueMedia(Job):
    """Attachments may wait to be fetched, or to be fetched again."""

    kind = "media.fetch_due"
    queue = MEDIA


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeImports(Job):
    """Records of imports may have outlived their use."""

    kind = "media.purge_imports"
    queue = RETENTION


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReplacedSecrets(Job):
    """Secrets that were replaced may not be good any more."""

    kind = "media.forget_replaced_secrets"
    queue = RETENTION
