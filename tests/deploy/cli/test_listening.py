"""Live output: `quartermaster listen`, and the progress bars of uploads and downloads."""

import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import pytest
from sqlalchemy import delete, text

from deploy.cli.commands import listen
from deploy.cli.display.progress_bars import progress_bar
from shared.deliveries.tables import deliveries
from shared.identity.access.roles import Role
from shared.ids import new_id
from tests.support.data.row_factory import plant_all
from tests.support.processes.stack import FOREIGN
from tests.support.web.served_web_process import serving
from tests.support.web.web_process import Front


@contextmanager
def listening(environment: dict[str, str], distribution_id: UUID) -> Iterator[IO[str]]:
    """Run `listen` during the block; yield its output."""
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


@pytest.fixture
def organization_id(front: Front) -> UUID:
    return front.identity.organization().id


@pytest.fixture
def distribution_id(front: Front, organization_id: UUID) -> UUID:
    made = front.identity.distribution(
        organization_id,
        principal_id=front.identity.principal(organization_id).id,
        deployment_id=front.identity.deployment(organization_id).deployment.id,
    )
    return made.distribution.id


@pytest.fixture
def asked(front: Front, organization_id: UUID) -> Iterator[dict[str, str]]:
    """Run a web process; yield the environment of an owner's commands."""
    owner = front.identity.person(organization_id, Role.WORKSPACE_OWNER)
    with serving(front.app) as url:
        yield {"SERVICE_BASE_URL": url, "SERVICE_API_KEY": owner.api_key}


def test_listen_prints_new_notifications_and_their_state_changes(
    front: Front, distribution_id: UUID, asked: dict[str, str]
) -> None:
    first, second = new_id(), new_id()
    with listening(asked, distribution_id) as shown:
        arrive(front, distribution_id, first)
        assert next_of(shown) == (str(first), "Waiting")
        arrive(front, distribution_id, second)
        assert next_of(shown) == (str(second), "Waiting")
        with front.services.database.transaction() as session:
            session.execute(
                text("UPDATE deliveries SET state = 'Dead', ended_at = now() WHERE id = :id"), {"id": first}
            )
        assert next_of(shown) == (str(first), "Dead")


def test_all_are_shown_in_their_order_however_many_arrive_at_once(
    front: Front, distribution_id: UUID, asked: dict[str, str]
) -> None:
    # More than two pages of 100, so a poll has to follow cursors.
    first, *others = [new_id() for _ in range(251)]
    with listening(asked, distribution_id) as shown:
        arrive(front, distribution_id, first)
        assert next_of(shown) == (str(first), "Waiting")
        arrive(front, distribution_id, *others)
        assert [next_of(shown)[0] for _ in others] == [str(at) for at in others]


def test_one_that_is_committed_after_many_newer_ones_is_shown(
    front: Front, distribution_id: UUID, asked: dict[str, str]
) -> None:
    # Its id is the oldest, as that of a transaction that began first and committed last.
    late, *others = [new_id() for _ in range(151)]
    with listening(asked, distribution_id) as shown:
        arrive(front, distribution_id, *others)
        assert [next_of(shown)[0] for _ in others] == [str(at) for at in others]
        arrive(front, distribution_id, late)
        assert next_of(shown) == (str(late), "Waiting")


def test_listen_skips_old_notifications_after_a_purge_of_newer_ones(
    front: Front, distribution_id: UUID, asked: dict[str, str]
) -> None:
    *old, new = [new_id() for _ in range(151)]
    for age, at in enumerate(reversed(old), 1):
        arrive(front, distribution_id, at, created_at=datetime.now(UTC) - age * timedelta(hours=1))
    with listening(asked, distribution_id) as shown:
        assert [next_of(shown)[0] for _ in range(100)] == [str(at) for at in old[50:]]
        with front.services.database.transaction() as session:
            session.execute(delete(deliveries).where(deliveries.c.id.in_(old[120:])))
        arrive(front, distribution_id, new)
        assert next_of(shown) == (str(new), "Waiting")


def test_at_a_terminal_a_line_says_what_happened_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(listen, "is_terminal", lambda: True)
        listen._print(
            {
                "id": "n-1",
                "createdAt": "2026-01-01T00:00:00Z",
                "type": "media.import.stored",
                "state": "Dead",
                "lastCode": "connection_failed",
            }
        )
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split("  ") == [
        "2026-01-01T00:00:00Z",
        "Dead",
        "media.import.stored",
        "n-1",
        "connection_failed",
    ]


def arrive(front: Front, distribution_id: UUID, *notification_ids: UUID, **values: Any) -> None:
    """Insert notifications in one transaction."""
    arrived = {
        "kind": "distribution",
        "event": "media.stored",
        "destination_id": distribution_id,
        "state": "Waiting",
        "body": b"{}",
        **values,
    }
    plant_all(front.services.database, [(deliveries, {**arrived, "id": at}) for at in notification_ids])


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
    # Another user may have chosen the name, so its control characters must not reach the terminal.
    assert "\x1b[31m report" not in drawn


def read_all(terminal: int) -> str:
    """Return the whole output of a terminal after its last writer has ended."""
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
