"""A command that shows the notifications of a distribution as they happen."""

import json
import time
from typing import Any
from uuid import UUID

import click

from deploy.output import is_json_asked_for, is_terminal
from deploy.remote import service

_LOOK_SECONDS = 2.0
_PAGE = {"limit": "100"}


@click.command(
    help="Subscribe to the notifications of a distribution: they are shown as they happen, until Ctrl-C."
    " A line of JSON each, where no terminal is."
)
@click.argument("distribution_id", type=click.UUID, metavar="DISTRIBUTION")
@click.option("--past", is_flag=True, help="Show the newest that were there before, too.")
@click.option("--seconds", type=click.FloatRange(0), help="End after so long.")
def listen(distribution_id: UUID, *, past: bool, seconds: float | None) -> None:
    path = f"/admin/distributions/{distribution_id}/notifications"
    deadline = None if seconds is None else time.monotonic() + seconds
    known: dict[str, str] = {}
    with service() as client:
        is_first = True
        while True:
            # Oldest first, as they happened.
            for at in reversed(client.raw.request("GET", path, query=_PAGE)["notifications"]):
                if known.get(at["id"]) != at["state"] and (past or not is_first):
                    _tell(at)
                known[at["id"]] = at["state"]
            is_first = False
            if deadline is not None and time.monotonic() >= deadline:
                return
            time.sleep(_LOOK_SECONDS)


def _tell(notification: dict[str, Any]) -> None:
    if is_json_asked_for() or not is_terminal():
        click.echo(json.dumps(notification))
        return
    from deploy.tables import plain

    words = (notification.get("createdAt"), notification["state"], notification.get("event"))
    code = notification.get("code") or ""
    click.echo("  ".join(plain(word) for word in (*words, notification["id"], code)))
