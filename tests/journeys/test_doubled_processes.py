"""Two of everything at once: no effect is doubled."""

from __future__ import annotations

from uuid import uuid4

from tests.journeys.conftest import assert_nothing_left_over
from tests.support.agents import Client
from tests.support.inventory import query
from tests.support.stack import Stack, wait_until

CONTENT = b"content" * 10_000


def test_two_workers_and_two_beats_do_everything_once(stack: Stack, agent: Client, owner: Client) -> None:
    workers = [stack.worker(name) for name in ("files", "background") * 2]
    beats = [stack.beat(QM_HOME=str(stack.directory / name)) for name in ("first", "second")]
    for name in ("first", "second"):
        (stack.directory / name).mkdir()
    with stack.running(*workers, *beats):
        files = [agent.upload(CONTENT, operation=uuid4()).json() for _ in range(20)]
        for file in files[::2]:
            assert owner.delete(file["id"], operation=uuid4()).status_code == 200
        wait_until(lambda: all(beat.has_logged("Sending due task") for beat in beats), "both beats beat")
        assert_nothing_left_over(stack)
        for worker in workers:
            assert not worker.has_logged('"level": "error"'), worker.log.read_text()
    for file in files[1::2]:
        assert agent.download(file["id"]).content == CONTENT
    assert (
        len(query(stack, "SELECT 1 FROM files WHERE id::text = ANY(%s)", ([at["id"] for at in files],))) == 20
    )
