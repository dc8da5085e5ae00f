"""What is shown while it happens: notifications that arrive, and how far a file has come."""

import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import pytest
from sqlalchemy import text

from deploy.transfers import progress_bar
from shared.deliveries.tables import deliveries
from shared.identity.roles import Role
from shared.ids import new_id
from tests.support.front import Front
from tests.support.planting import plant
from tests.support.served_front import serving
from tests.support.stack import FOREIGN


@contextmanager
def listening(environment: dict[str, str], distribution_id: UUID) -> Iterator[IO[str]]:
    """Run `listen` within the block; give its output."""
    inherited = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    process = subprocess.Popen(
        [Path(sys.executable).parent / "quartermaster", "listen", str(distribution_id), "--past"],
        env=inherited | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        yield process.stdout
    finally:
        process.terminate()
        _, errors = process.communicate()
    assert errors == ""


def test_a_notification_is_shown_as_it_arrives_and_again_as_its_state_changes(front: Front) -> None:
    organization_id = front.identity.organization().id
    owner = front.identity.person(organization_id, Role.WORKSPACE_OWNER)
    made = front.identity.distribution(
        organization_id,
        principal_id=front.identity.principal(organization_id).id,
        deployment_id=front.identity.deployment(organization_id).deployment.id,
    )
    distribution_id = made.distribution.id
    database, first, second = front.services.database, new_id(), new_id()
    with (
        serving(front.app) as url,
        listening({"SERVICE_BASE_URL": url, "SERVICE_API_KEY": owner.api_key}, distribution_id) as shown,
    ):
        arrive(front, first, distribution_id)
        assert next_of(shown) == (str(first), "Waiting")
        arrive(front, second, distribution_id)
        assert next_of(shown) == (str(second), "Waiting")
        with database.transaction() as session:
            session.execute(
                text("UPDATE deliveries SET state = 'Dead', ended_at = now() WHERE id = :id"), {"id": first}
            )
        assert next_of(shown) == (str(first), "Dead")


def arrive(front: Front, notification_id: UUID, distribution_id: UUID) -> None:
    plant(
        front.services.database,
        deliveries,
        id=notification_id,
        kind="distribution",
        event="media.stored",
        destination_id=distribution_id,
        state="Waiting",
        body=b"{}",
    )


def next_of(shown: IO[str]) -> tuple[Any, Any]:
    told = json.loads(shown.readline())
    return told["id"], told["state"]


def test_at_a_terminal_a_bar_says_how_far_a_file_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        with progress_bar("a\x1b[31m report [draft]") as moved:
            assert moved
            moved(2_000_000, 4_000_000)
    drawn = read_all(ours)
    assert "report [draft]" in drawn
    assert "2.0/4.0 MB" in drawn
    assert "\x1b[31m report" not in drawn


def read_all(terminal: int) -> str:
    """Read what was written to a terminal that nobody writes to any more."""
    read = b""
    with suppress(OSError):
        while piece := os.read(terminal, 1 << 16):
            read += piece
    os.close(terminal)
    return read.decode()


def test_where_no_terminal_is_no_bar_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("report") as moved:
        assert moved is None
    assert capsys.readouterr().err == ""
