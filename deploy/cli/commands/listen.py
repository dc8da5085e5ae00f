"""A command that shows the notifications of a distribution as they happen.

The list is read from its newest on, by its cursor, as far back as the look before may not have seen all: however many
arrive between two looks, none is left out.
"""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from deploy.cli.client.rest_client import service
from deploy.cli.display.output import is_json_asked_for, is_terminal

if TYPE_CHECKING:
    from quartermaster import Client

_LOOK_SECONDS = 2.0
_PAGE = {"limit": "100"}
# A transaction that began before a look may commit after it: what it writes stands behind what was seen.
_OVERLAP = timedelta(seconds=30)
_BEGINNING = datetime.min.replace(tzinfo=UTC)


@click.command(
    help="Subscribe to the notifications of a distribution: they are shown as they happen, until Ctrl-C."
    " A line of JSON each, where no terminal is."
)
@click.argument("distribution_id", type=click.UUID, metavar="DISTRIBUTION")
@click.option("--past", is_flag=True, help="Show the newest that were there before, too.")
@click.option("--seconds", type=click.FloatRange(0), help="End after so long.")
def listen(distribution_id: UUID, *, past: bool, seconds: float | None) -> None:
    deadline = None if seconds is None else time.monotonic() + seconds
    with service() as client:
        followed = _Followed(client, f"/admin/distributions/{distribution_id}/notifications")
        seen = followed.look()
        if past:
            _tell_all(seen)
        while deadline is None or time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            _tell_all(followed.look())


class _Followed:
    """A list of notifications, newest first, and what of it was seen."""

    def __init__(self, client: "Client", path: str) -> None:
        self._client = client
        self._path = path
        self._states: dict[str, str] = {}
        self._since: datetime | None = None  # None before the first look

    def look(self) -> list[dict[str, Any]]:
        """Give what is new and what has another state than at the look before, oldest first; at first the newest."""
        listed = self._read()
        changed = [at for at in listed if self._is_told(at)]
        self._states = {at["id"]: at["state"] for at in listed}
        if listed:
            self._since = max(_created_at(listed[0]) - _OVERLAP, self._since or _BEGINNING)
        elif self._since is None:
            self._since = _BEGINNING
        return changed[::-1]

    def _read(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = []
        query = _PAGE
        while True:
            page = self._client.raw.request("GET", self._path, query=query)
            listed += page["notifications"]
            cursor = page.get("nextCursor")
            if cursor is None or _created_at(listed[-1]) < (self._since or _created_at(listed[0]) - _OVERLAP):
                return listed
            query = _PAGE | {"cursor": cursor}

    def _is_told(self, notification: dict[str, Any]) -> bool:
        known = self._states.get(notification["id"])
        if known is None:
            # An old one comes into sight where newer ones were purged.
            return self._since is None or _created_at(notification) >= self._since
        return known != str(notification["state"])


def _created_at(notification: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(notification["createdAt"])


def _tell_all(notifications: list[dict[str, Any]]) -> None:
    for notification in notifications:
        _tell(notification)


def _tell(notification: dict[str, Any]) -> None:
    if is_json_asked_for() or not is_terminal():
        click.echo(json.dumps(notification))
        return
    from deploy.cli.display.table_output import plain

    words = (notification["createdAt"], notification["state"], notification["type"])
    code = notification.get("lastCode") or ""
    click.echo("  ".join(plain(word) for word in (*words, notification["id"], code)))
