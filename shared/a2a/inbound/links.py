"""Put links into an update that is about to be posted to a distribution, in place of the addresses of files."""

from uuid import UUID

from shared.a2a.behaviors.file_links import FileLinks
from shared.a2a.exact_json import parse, render
from shared.db.database import Session
from shared.media.importing.import_notifications import EventType


def link_files(session: Session, links: FileLinks, body: bytes) -> bytes:
    """Give the body of a notification with links where files stand; any other one as it is."""
    text = body.decode()
    if not links.may_hold_files(text):
        return body
    told = parse(text)
    if told.get("type") != EventType.MESSAGE_UPDATE.value:
        return body
    data = told["data"]
    linked = links.with_links_in(session, UUID(data["taskId"]), data["update"])
    return render({**told, "data": {**data, "update": linked}}).encode()
