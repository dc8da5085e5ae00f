"""Links to the files in a task, created when an authorized reader reads the task.

In the log a part has the plain URL of a file's content. Requests to this URL need a credential
(`behaviors/stored_files.py`). For a response, `with_links` replaces the plain URL by a URL with a read grant, so no
row, event or queue contains a secret. Only files to which the task refers get a grant, so a client cannot open a file
by writing its URL into a message.
"""

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.files.grants import Reading, grant_to_readers
from shared.files.references import ReferenceKind

LINK_LIFE = timedelta(hours=24)
"""The longest life of a grant; a link is valid for between half of it and all of it.

The limit of grants: docs/specification/sharing.md#limits.
"""
MAX_LINKS = 1000
_HOLDERS = frozenset(
    {"task", "artifacts", "artifact", "artifactUpdate", "statusUpdate", "status", "message", "history"}
)
_Part: TypeAlias = dict[str, Any]
_UUID = r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"


def content_address(base_url: str, file_id: UUID, version_id: UUID) -> str:
    """Return the URL of a version's content. Requests to this URL need a credential."""
    return f"{base_url}/files/{file_id}/content?versionId={version_id}"


class FileLinks:
    """Creates the links of a process."""

    def __init__(self, database: Database, settings: Settings) -> None:
        """Derive the key for links from the first encryption key. If the encryption key changes, the links change."""
        self._database = database
        self._base_url = settings.base_url
        self._key = hmac.digest(
            # Derive the key, so that all processes return the same link for half of its life and store no token.
            settings.encryption_keys[0].get_secret_value().encode(),
            b"links of tasks",
            hashlib.sha256,
        )
        self._address = re.compile(
            re.escape(settings.base_url) + rf"/files/{_UUID}/content\?versionId={_UUID}", re.ASCII
        )

    def may_contain_files(self, text: str) -> bool:
        """Return whether a JSON text may contain the address of a file."""
        return f"{self._base_url}/files/" in text

    def with_links(self, task_id: UUID, wire: Any) -> Any:
        """Return the JSON of a task, an artifact or an event with links in place of file addresses.

        A value without such an address is returned unchanged, and no row is read.
        """
        found = self._find(task_id, wire)
        if not found:
            return wire
        with self._database.autocommit() as session:
            return self._linked(session, wire, found)

    def with_links_in(self, session: Session, task_id: UUID, wire: Any) -> Any:
        """Return the same result as `with_links`, but read rows in the caller's transaction."""
        found = self._find(task_id, wire)
        return self._linked(session, wire, found) if found else wire

    def _find(self, task_id: UUID, wire: Any) -> Mapping[str, Reading]:
        found: dict[str, Reading] = {}
        _change_parts(wire, lambda part: self._note(task_id, part, found))
        return found

    def _linked(self, session: Session, wire: Any, found: Mapping[str, Reading]) -> Any:
        links = self._make(session, found)
        return _change_parts(wire, lambda part: self._link(part, links))

    def _note(self, task_id: UUID, part: _Part, found: dict[str, Reading]) -> _Part:
        url = part.get("url")
        address = self._address.fullmatch(url) if isinstance(url, str) else None
        # Each link needs a row lookup, so files beyond the limit keep their plain addresses.
        if address is not None and len(found) < MAX_LINKS:
            found[address[0]] = Reading(
                file_id=UUID(address[1]),
                version_id=UUID(address[2]),
                kind=ReferenceKind.TASK,
                reference_id=str(task_id),
                ttl=LINK_LIFE,
            )
        return part

    def _make(self, session: Session, found: Mapping[str, Reading]) -> Mapping[str, str]:
        now = datetime.fromtimestamp(time.time(), tz=UTC)
        links: dict[str, str] = {}
        for address, reading in found.items():
            link = grant_to_readers(session, reading, key=self._key, now=now)
            if link is not None:
                links[address] = f"{self._base_url}/files/{reading.file_id}/content?grant={link.token}"
        return links

    def _link(self, part: _Part, links: Mapping[str, str]) -> _Part:
        url = part.get("url")
        link = links.get(url) if isinstance(url, str) else None
        return part if link is None else {**part, "url": link}


def _change_parts(value: Any, change: Callable[[_Part], _Part]) -> Any:
    """Return an object of the protocol in which each part is replaced by `change(part)`."""
    if isinstance(value, list):
        return [_change_parts(item, change) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {
        name: _change_parts(member, change) if name in _HOLDERS else member for name, member in value.items()
    }
    if isinstance(value.get("parts"), list):
        changed["parts"] = [change(part) if isinstance(part, dict) else part for part in value["parts"]]
    return changed
