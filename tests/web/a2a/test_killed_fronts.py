"""A web process is killed while it accepts a message. Sent again with the same key, it is accepted exactly once."""

from uuid import uuid4

import pytest

from tests.support.processes.killable_processes import die_at
from tests.web.a2a import mortal_front
from tests.web.a2a.asking import request
from tests.web.a2a.conftest import Cast


@pytest.mark.parametrize(("point", "taken"), [("send.before_commit", 0), ("send.committed", 1)])
@pytest.mark.parametrize("path", ["/message:send", "/message:stream"])
def test_message_is_accepted_once_if_the_process_is_killed(
    cast: Cast, point: str, taken: int, path: str
) -> None:
    _, client = cast.new_agent()
    client = client.with_headers(Idempotency_Key=str(uuid4()))
    headers = {"Authorization": str(client.authorization), **client.headers}
    body = request("work", configuration={"returnImmediately": True})
    assert die_at(point, mortal_front.take, cast.front.settings, client.prefix + path, headers, body)
    assert client.list()["totalSize"] == taken
    again = client.ask("POST", "/message:send", json=body)
    assert again.status_code == 200
    assert client.list()["totalSize"] == 1
    # The wake-up message of the turn was lost; the worker finds it by polling.
    task_id = client.list()["tasks"][0]["id"]
    client.ask("GET", f"/tasks/{task_id}:subscribe").get_data()
    assert client.read(task_id)["status"]["state"] == "TASK_STATE_COMPLETED"
