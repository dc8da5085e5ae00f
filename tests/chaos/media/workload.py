"""The workload of messaging media: it compares what was pushed, stored and notified."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from tests.chaos.background_work import DELIVERIES, MEDIA
from tests.chaos.installation import Installation
from tests.chaos.media.attachments import MAX_MEDIA_BYTES
from tests.chaos.media.clients import Distribution, MediaClient, Pushed
from tests.chaos.media.servers import Endpoint
from tests.chaos.workload import Person, Workload
from tests.support.data.inventory import query
from tests.support.data.media_sources import MediaSource

CLIENTS = 2
SETTINGS = {
    "EGRESS_ALLOW_PRIVATE": "true",
    "EGRESS_ALLOW_HTTP": "true",
    "MAX_MEDIA_BYTES": str(MAX_MEDIA_BYTES),
    # Each death of a worker counts as an attempt, so raise the limit: every storable attachment must be stored.
    "MEDIA_ATTEMPTS": "1000",
}
_IMPORTS = """
SELECT i.id::text, i.message_id, i.attachment_id, i.state, i.code, i.file_id::text, encode(v.content_sha256, 'hex')
FROM media_imports i LEFT JOIN file_versions v ON v.id = i.version_id
"""
_UNDELIVERED = (
    "SELECT id::text, event, state, last_status, last_code FROM deliveries WHERE state <> 'Delivered'"
)
STORED, FAILED, EXPIRED = "media.import.stored", "media.import.failed", "file.expired"


class Media(Workload):
    """A distribution's pushes, the fetches of their attachments, and the notifications about the results."""

    workers = {"media": 1, "files": 1, "background": 2}  # noqa: RUF012
    waiting = (MEDIA, DELIVERIES)

    def __init__(self, installation: Installation, closing: ExitStack) -> None:
        self._installation = installation
        self._people: Sequence[MediaClient] = ()
        self._source = closing.enter_context(MediaSource())
        secret = Distribution(installation).webhook_secret
        self._endpoint = closing.enter_context(Endpoint(secret, installation.chance("endpoint")))
        installation.stack.environment.update(SETTINGS)

    def begin(self) -> Sequence[Person]:
        at = self._installation
        owner, path = at.owner(), Distribution(at).endpoint_path
        named = owner.request("PUT", path, json={"url": self._endpoint.url})
        named.raise_for_status()
        self._people = [MediaClient(at, f"media/{number}", self._source, owner) for number in range(CLIENTS)]
        return self._people

    def compare(self) -> Iterator[str]:
        pushed = {at.import_id: at for person in self._people for at in person.pushed}
        rows = {row[0]: row[1:] for row in query(self._installation.stack, _IMPORTS)}
        for import_id, at in pushed.items():
            yield from _compare_import(at, rows.get(import_id))
        yield from (f"an import that nobody pushed: {rows[at]}" for at in rows.keys() - pushed.keys())
        yield from self._endpoint.faults
        yield from (f"undelivered: {row}" for row in query(self._installation.stack, _UNDELIVERED))
        yield from self._compare_notifications(pushed, {at: row[4] for at, row in rows.items()})

    def _compare_notifications(
        self, pushed: dict[str, Pushed], files: dict[str, str | None]
    ) -> Iterator[str]:
        """Yield imports and expired files that were not notified under exactly one id each."""
        told: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for event in self._endpoint.events():
            told[event["type"], event["data"]["importId"]].append(event["data"])
        for import_id, at in pushed.items():
            ended = STORED if at.offer.failure is None else FAILED
            for kind in (ended, *([EXPIRED] if at.is_aged else [])):
                events = told.pop((kind, import_id), [])
                if len(events) != 1 or events[0].get("fileId") != files.get(import_id):
                    yield f"{kind} of import {import_id} was told as {events}"
        yield from (f"told of what did not happen: {key} {events}" for key, events in told.items())


def _compare_import(pushed: Pushed, row: tuple[Any, ...] | None) -> Iterator[str]:
    offer = pushed.offer
    if row is None:
        yield f"import {pushed.import_id} was acknowledged and is lost"
        return
    message_id, attachment_id, state, code, _, digest = row
    if (message_id, attachment_id) != (pushed.message_id, offer.attachment_id):
        yield f"import {pushed.import_id} is of {message_id}/{attachment_id}"
    expected = ("Stored", None, offer.sha256) if offer.failure is None else ("Failed", offer.failure, None)
    if (state, code, digest) != expected:
        yield f"import {pushed.import_id} is {(state, code, digest)} instead of {expected}"
