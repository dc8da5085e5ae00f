"""Read the files of this service to which a message links, and add task references to such files.

A link opens only the file of its grant, regardless of the author of the message. Other addresses are ignored: this
module sends no request to another host.
"""

import re
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from shared.a2a.behaviors.prompts import PartNotReadable
from shared.a2a.file_links import content_address
from shared.config.settings import Settings
from shared.db.database import Database
from shared.errors import DomainError, ServiceUnavailable
from shared.files.blobs.base import BlobStore
from shared.files.grants import get_granted_content
from shared.files.references import ReferenceKind, add_reference
from shared.identity.access.callers import Caller

# Limits the content of a file, because it is kept in memory and sent to the model's provider.
MAX_READ_BYTES = 20 << 20
_PATH = re.compile(r"/files/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/content", re.ASCII)


class LinkedFiles:
    """Reads linked files. Threads may share it."""

    def __init__(self, database: Database, store: BlobStore, settings: Settings) -> None:
        self._database = database
        self._store = store
        self._base_url = settings.base_url

    def read(self, url: str) -> tuple[str, bytes] | None:
        """Return the media type and the content of the linked file, or None if the URL is not a link of this service.

        Raises PartNotReadable.
        """
        link = self._find_link(url)
        if link is None:
            return None
        try:
            return self._read(*link)
        except DomainError as error:
            raise PartNotReadable("A file that the message links to could not be read.") from error

    def refer_to(self, caller: Caller, task_id: UUID, url: str) -> str | None:
        """Add a reference of a task to the linked file, and return the file's address without the grant.

        Returns None if the URL is not a link of this service, or if the caller may not share the file. Raises
        ServiceUnavailable.
        """
        link = self._find_link(url)
        if link is None:
            return None
        try:
            with self._database.autocommit() as session:
                version = get_granted_content(session, *link).version
            add_reference(self._database, caller, version.file_id, ReferenceKind.TASK, str(task_id))
        except ServiceUnavailable:
            raise
        except DomainError:
            return None
        return content_address(self._base_url, version.file_id, version.id)

    def _find_link(self, url: str) -> tuple[UUID, str] | None:
        """Return the file id and the token in a link of this service, or None for another URL."""
        # Only links of this service are read, so a message cannot make it contact other hosts.
        if not url.startswith(f"{self._base_url}/"):
            return None
        address = urlsplit(url)
        found = _PATH.fullmatch(address.path.removeprefix(urlsplit(self._base_url).path))
        tokens = parse_qs(address.query).get("grant", [])
        return (UUID(found[1]), tokens[0]) if found is not None and len(tokens) == 1 else None

    def _read(self, file_id: UUID, token: str) -> tuple[str, bytes]:
        with self._database.autocommit() as session:
            content = get_granted_content(session, file_id, token)
        version = content.version
        if version.byte_size > MAX_READ_BYTES:
            raise PartNotReadable("A file that the message links to is too large for the agent to read.")
        with self._store.open(version.id, placed=content.is_placed) as reader:
            return version.media_type, b"".join(reader.chunks(0, version.byte_size))
