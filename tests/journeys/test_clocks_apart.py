"""Hosts whose clocks differ by the permitted maximum: due work is still done."""

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from deploy.process_types import beat_command, worker_command
from tests.support.agents.rest_clients import Client
from tests.support.data.inventory import end_retention, query
from tests.support.processes.stack import Service, Stack, wait_until
from tests.support.processes.wrong_clock import WrongClock, with_wrong_clock

CONTENT = b"content"
APART_SECONDS = 30
"""Of either host's clock from the database's (deploy/README.md#clocks)."""


def test_sweeps_run_where_the_workers_clock_is_ahead_of_beat(
    stack: Stack, agent: Client, tmp_path: Path
) -> None:
    file = agent.upload(CONTENT, operation=uuid4()).json()
    beat = described(
        stack, beat_command(stack.environment), WrongClock(tmp_path / "beat", seconds=-APART_SECONDS)
    )
    worker = described(
        stack,
        worker_command("background", stack.environment),
        WrongClock(tmp_path / "worker", seconds=APART_SECONDS),
    )
    with stack.running(beat, worker):
        end_retention(stack, file["id"])
        state = "SELECT state FROM files WHERE id = %s"
        wait_until(
            lambda: query(stack, state, (file["id"],)) == [("Expired",)], "beat's sweep expires the file"
        )


def described(stack: Stack, command: Sequence[str], clock: WrongClock) -> Service:
    return stack._service(f"with clock {clock.path.name}", with_wrong_clock(command), clock.settings)
