"""Two processes of each kind at once: no effect occurs twice."""

from uuid import uuid4

import redis

from shared.files.lifecycle.placement import PlaceStaged
from tests.journeys.conftest import assert_nothing_left_over
from tests.support.agents.rest_clients import Client
from tests.support.data.inventory import query
from tests.support.processes.stack import Stack, wait_until

CONTENT = b"content" * 10_000


def test_two_workers_and_two_beats_do_everything_once(stack: Stack, agent: Client, owner: Client) -> None:
    workers = [stack.worker(name) for name in ("files", "background") * 2]
    beats = [stack.beat(QM_HOME=str(stack.directory / name)) for name in ("first", "second")]
    for name in ("first", "second"):
        (stack.directory / name).mkdir()
    answers = [agent.upload(CONTENT, operation=uuid4()) for _ in range(20)]
    assert {answer.status_code for answer in answers} <= {201, 202}, [answer.text for answer in answers]
    files = [answer.json() for answer in answers]
    with redis.Redis.from_url(stack.redis_url) as broker, stack.running(*beats):
        queue = f"quartermaster:{PlaceStaged.queue}"
        broker.delete(queue)
        wait_until(lambda: broker.llen(queue) >= 2, "both beats beat")
        with stack.running(*workers):
            for file in files[::2]:
                assert owner.delete(file["id"], operation=uuid4()).status_code == 200
            assert_nothing_left_over(stack)
            for worker in workers:
                assert not worker.has_logged('"level": "error"'), worker.log.read_text()
    for file in files[1::2]:
        assert agent.download(file["id"]).content == CONTENT
    kept = query(stack, "SELECT 1 FROM files WHERE id::text = ANY(%s)", ([file["id"] for file in files],))
    assert len(kept) == len(files)
