"""The command `listen`: poll the list of a distribution's notifications, and print new ones.

A poll reads pages, newest first, back to the time up to which the previous poll certainly returned every notification.
So the command misses no notification, even if many arrive between two polls.
"""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from deploy.cli.client.rest_client import service
from deploy.cli.display.output import is_json_requested, is_terminal

if TYPE_CHECKING:
    from quartermaster import Client

_POLL_SECONDS = 2.0
_PAGE = {"limit": "100"}
# Each poll reads 30 s further back: a transaction that commits after a poll may add rows that are older than the
# newest row of that poll.
_OVERLAP = timedelta(seconds=30)
_BEGINNING = datetime.min.replace(tzinfo=UTC)


@click.command(
    help="Subscribe to the notifications of a distribution: print each as it arrives, until Ctrl-C."
    " Without a terminal, or with --json, each is one line of JSON."
)
@click.argument("distribution_id", type=click.UUID, metavar="DISTRIBUTION")
@click.option("--past", is_flag=True, help="Also print the newest existing notifications.")
@click.option(
    "--seconds", type=click.FloatRange(0), help="Stop after this many seconds; by default only at Ctrl-C."
)
def listen(distribution_id: UUID, *, past: bool, seconds: float | None) -> None:
    deadline = None if seconds is None else time.monotonic() + seconds
    with service() as client:
        poller = _NotificationPoller(client, f"/admin/distributions/{distribution_id}/notifications")
        # Poll first even without --past, so that notifications that exist now are not printed later.
        existing = poller.poll()
        if past:
            _print_all(existing)
        while deadline is None or time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            _print_all(poller.poll())


class _NotificationPoller:
    """Polls a list of notifications, and remembers the state of each notification that a poll returned."""

    def __init__(self, client: "Client", path: str) -> None:
        self._client = client
        self._path = path
        self._states: dict[str, str] = {}
        self._since: datetime | None = None  # None before the first poll

    def poll(self) -> list[dict[str, Any]]:
        """Return the notifications that are new or have another state since the last poll, oldest first.

        The first poll returns the newest notifications.
        """
        listed = self._read()
        changed = [at for at in listed if self._is_changed(at)]
        # Replace all remembered states, so that memory use stays bounded however long the command runs.
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

    def _is_changed(self, notification: dict[str, Any]) -> bool:
        known = self._states.get(notification["id"])
        if known is None:
            # Return a row only if it is recent: after a purge of newer rows, a poll may read old rows that are not new.
            return self._since is None or _created_at(notification) >= self._since
        return known != str(notification["state"])


def _created_at(notification: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(notification["createdAt"])


def _print_all(notifications: list[dict[str, Any]]) -> None:
    for notification in notifications:
        _print(notification)


def _print(notification: dict[str, Any]) -> None:
    if is_json_requested() or not is_terminal():
        click.echo(json.dumps(notification))
        return
    from deploy.cli.display.table_output import plain

    words = (notification["createdAt"], notification["state"], notification["type"])
    code = notification.get("lastCode") or ""
    click.echo("  ".join(plain(word) for word in (*words, notification["id"], code)))
