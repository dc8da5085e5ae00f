"""Read the files of ours that a message links to, so that a model is given their content instead of an address.

A link opens exactly what its grant says, no matter who wrote it into a message; any other address is not looked at:
nothing here asks another host.
"""

import re
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from shared.a2a.behaviors.prompts import PartNotReadable
from shared.database import Database
from shared.errors import DomainError
from shared.files.blobs.base import BlobStore
from shared.files.grants import get_granted_content
from shared.settings import Settings

MAX_READ_BYTES = 20 << 20
_PATH = re.compile(r"/files/([0-9a-f-]{36})/content", re.ASCII)


class LinkedFiles:
    """Reads linked files; safe to share between threads."""

    def __init__(self, database: Database, store: BlobStore, settings: Settings) -> None:
        self._database = database
        self._store = store
        self._base_url = settings.base_url

    def read(self, url: str) -> tuple[str, bytes] | None:
        """Give media type and content behind a link of ours; None for any other address. Raises PartNotReadable."""
        address = urlsplit(url)
        found = _PATH.fullmatch(address.path.removeprefix(urlsplit(self._base_url).path))
        tokens = parse_qs(address.query).get("grant", [])
        if not url.startswith(f"{self._base_url}/") or found is None or len(tokens) != 1:
            return None
        try:
            return self._read(UUID(found[1]), tokens[0])
        except (DomainError, ValueError) as error:
            raise PartNotReadable("A file that the message links to cannot be read.") from error

    def _read(self, file_id: UUID, token: str) -> tuple[str, bytes]:
        with self._database.autocommit() as session:
            content = get_granted_content(session, file_id, token)
        version = content.version
        if version.byte_size > MAX_READ_BYTES:
            raise PartNotReadable("A file that the message links to is too large for the agent to read.")
        with self._store.open(version.id, placed=content.is_placed) as reader:
            return version.media_type, b"".join(reader.chunks(0, version.byte_size))
