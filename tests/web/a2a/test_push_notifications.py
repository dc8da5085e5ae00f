"""Push notifications: every update, in order, with the client's credentials, and only to permitted addresses."""

import runpy
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from standardwebhooks import Webhook

from shared.a2a.exact_json import parse
from shared.a2a.push.configurations import CONFIGURATIONS_LIMIT
from shared.deliveries.sender import Sender
from shared.migrations import versions
from tests.contracts.a2a.schemas import check
from tests.support.agents.agent_worker import answering_turns
from tests.support.processes.stack import wait_until
from tests.support.web.web_process import Front, open_front
from tests.web.a2a.asking import Client, reason, states
from tests.web.a2a.conftest import Cast, make_cast

PATH = "/tasks/{task}/pushNotificationConfigs"


@dataclass
class Receiver:
    """A server that receives updates, and can refuse the first of them."""

    url: str = ""
    received: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    failures: int = 0

    def bodies(self) -> list[Any]:
        return [body for _, body in self.received]


@pytest.fixture(scope="module")
def cast(front: Front, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cast]:
    """The cast at a front that may send to this host."""
    settings = front.settings
    with (
        open_front(
            settings.database_url,
            settings.redis_url,
            tmp_path_factory.mktemp("blobs"),
            egress_allow_private=True,
            egress_allow_http=True,
        ) as developing,
        answering_turns(developing.services),
    ):
        yield make_cast(developing)
        developing.services.agents.watch.close()


@pytest.fixture
def receiver(cast: Cast) -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.failures:
                receiver.failures -= 1
                self.send_error(503)
                return
            receiver.raw.append(body)
            receiver.received.append((dict(self.headers), parse(body)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/hook?key=x"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield receiver
        server.shutdown()


@pytest.fixture
def sender(cast: Cast) -> Iterator[Sender]:
    sender = Sender(cast.front.services.database, cast.front.settings, {})
    yield sender
    sender.stop()


def collect(sender: Sender, receiver: Receiver, number: int) -> list[Any]:
    wait_until(lambda: sender.send_due() >= 0 and len(receiver.received) >= number, "updates have arrived")
    return receiver.bodies()


def test_every_update_is_posted_in_order_with_the_clients_credentials(
    cast: Cast, receiver: Receiver, sender: Sender
) -> None:
    push = {
        "url": receiver.url,
        "token": "my token",
        "authentication": {"scheme": "Bearer", "credentials": "s3cret"},
    }
    task = cast.member.task("work", configuration={"taskPushNotificationConfig": push})
    told = collect(sender, receiver, 5)
    for body in told:
        check("StreamResponse", body)
    assert states(told) == ["WORKING", "COMPLETED"]
    assert [next(iter(body)) for body in told] == ["statusUpdate", *["artifactUpdate"] * 3, "statusUpdate"]
    headers = receiver.received[0][0]
    assert headers["Content-Type"] == "application/a2a+json"
    assert headers["Authorization"] == "Bearer s3cret"
    assert headers["X-A2A-Notification-Token"] == "my token"
    config = cast.member.ask("GET", f"{PATH.format(task=task['id'])}/{task['id']}").get_json()
    check("TaskPushNotificationConfig", config)
    assert config == {
        "id": task["id"],
        "taskId": task["id"],
        "url": receiver.url,
        "token": "my token",
        "authentication": {"scheme": "Bearer"},
    }


def test_updates_that_follow_a_failed_post_wait_behind_it(
    cast: Cast, receiver: Receiver, sender: Sender
) -> None:
    receiver.failures = 1
    task = cast.member.task("work", configuration={"taskPushNotificationConfig": {"url": receiver.url}})
    wait_until(lambda: sender.send_due() >= 0 and receiver.failures == 0, "a post has failed")
    assert receiver.received == []
    with cast.front.services.database.transaction() as session:
        session.execute(text("UPDATE deliveries SET due_at = now() WHERE state = 'Waiting' AND NOT is_held"))
    told = collect(sender, receiver, 5)
    assert states(told) == ["WORKING", "COMPLETED"]
    assert [next(iter(body)) for body in told] == ["statusUpdate", *["artifactUpdate"] * 3, "statusUpdate"]
    numbers = [int(headers["webhook-sequence"]) for headers, _ in receiver.received]
    with cast.front.services.database.autocommit() as session:
        log = "SELECT sequence FROM task_events WHERE task_id = :id ORDER BY sequence"
        assert numbers == list(session.execute(text(log), {"id": task["id"]}).scalars())[-5:]


@pytest.mark.parametrize("token", ["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "my own token"])
def test_a_post_is_signed_with_its_token(cast: Cast, receiver: Receiver, sender: Sender, token: str) -> None:
    push = {"url": receiver.url, "token": token}
    task = cast.member.task("work", configuration={"taskPushNotificationConfig": push})
    collect(sender, receiver, 5)
    is_secret = token.startswith("whsec_")
    webhook = Webhook(token if is_secret else token.encode())
    for (headers, _), body in zip(receiver.received, receiver.raw, strict=True):
        webhook.verify(body, {name.lower(): value for name, value in headers.items()})
        assert headers.get("X-A2A-Notification-Token") == (None if is_secret else token)
    config = cast.member.ask("GET", f"{PATH.format(task=task['id'])}/{task['id']}").get_json()
    assert config["token"] == token


def test_later_configuration_gets_only_later_updates(cast: Cast, receiver: Receiver, sender: Sender) -> None:
    task = cast.member.task("ask")
    path = PATH.format(task=task["id"])
    made = cast.member.ask("POST", path, json={"id": "mine", "url": receiver.url})
    assert made.status_code == 200
    assert "authentication" not in made.get_json()
    cast.member.task("this one", taskId=task["id"])
    assert states(collect(sender, receiver, 2)) == ["SUBMITTED", "COMPLETED"]


def test_deleted_configuration_gets_no_more_updates(cast: Cast, receiver: Receiver, sender: Sender) -> None:
    task = cast.member.task("ask")
    path = PATH.format(task=task["id"])
    for name in ("gone", "kept"):
        cast.member.ask("POST", path, json={"id": name, "url": f"{receiver.url}&name={name}"})
    for _ in range(2):
        deleted = cast.member.ask("DELETE", f"{path}/gone")
        assert (deleted.status_code, deleted.get_json()) == (200, {})
    cast.member.task("this one", taskId=task["id"])
    assert len(collect(sender, receiver, 2)) == 2
    gone = cast.member.ask("GET", f"{path}/gone")
    assert (gone.status_code, reason(gone)) == (404, "TASK_NOT_FOUND")


def test_pending_updates_go_to_the_replaced_url(cast: Cast, receiver: Receiver, sender: Sender) -> None:
    receiver.failures = 1
    task = cast.member.task("ask")
    path = PATH.format(task=task["id"])
    cast.member.ask("POST", path, json={"id": "c", "url": receiver.url, "token": "old"})
    cast.member.task("this one", taskId=task["id"])
    wait_until(lambda: sender.send_due() >= 0 and receiver.failures == 0, "a post has failed")
    cast.member.ask("POST", path, json={"id": "c", "url": receiver.url, "token": "new"})
    with cast.front.services.database.transaction() as session:
        session.execute(text("UPDATE deliveries SET due_at = now() WHERE state = 'Waiting' AND NOT is_held"))
    collect(sender, receiver, 2)
    assert {headers["X-A2A-Notification-Token"] for headers, _ in receiver.received} == {"new"}


def test_pending_updates_are_dropped_with_their_configuration(cast: Cast) -> None:
    task = cast.member.task("ask")
    path = PATH.format(task=task["id"])
    assert (
        cast.member.ask("POST", path, json={"id": "gone", "url": "https://hooks.example/"}).status_code == 200
    )
    cast.member.task("this one", taskId=task["id"])
    of_it = "FROM task_push_configurations c JOIN deliveries d USING (destination_id) WHERE c.task_id = :task"
    with cast.front.services.database.autocommit() as session:
        waiting = session.execute(
            text(f"SELECT array_agg(d.id) {of_it} AND d.state = 'Waiting'"), {"task": task["id"]}
        ).scalar_one()
    assert cast.member.ask("DELETE", f"{path}/gone").status_code == 200
    with cast.front.services.database.autocommit() as session:
        states_now = session.execute(
            text("SELECT array_agg(DISTINCT state) FROM deliveries WHERE id = ANY (:ids)"), {"ids": waiting}
        ).scalar_one()
    assert states_now == ["Dead"]


def test_a_task_has_so_many_configurations_and_no_more(cast: Cast) -> None:
    task = cast.member.task("hello")
    path = PATH.format(task=task["id"])

    def create(number: int) -> int:
        config = {"id": f"config{number}", "url": "https://hooks.example/"}
        return cast.member.ask("POST", path, json=config).status_code

    assert {create(number) for number in range(CONFIGURATIONS_LIMIT)} == {200}
    assert create(CONFIGURATIONS_LIMIT) == 400
    assert create(0) == 200  # replaces the existing one


def test_configurations_are_listed_in_pages(cast: Cast) -> None:
    task = cast.member.task("hello")
    path = PATH.format(task=task["id"])
    names = [f"config/{number}" for number in range(3)]
    for name in names:
        answer = cast.member.ask("POST", path, json={"id": name, "url": "https://hooks.example/"})
        assert answer.status_code == 200
    page = cast.member.ask("GET", f"{path}?pageSize=2").get_json()
    check("ListTaskPushNotificationConfigsResponse", page)
    rest = cast.member.ask("GET", f"{path}?pageSize=2&pageToken={page['nextPageToken']}").get_json()
    assert [config["id"] for config in page["configs"] + rest["configs"]] == names
    assert rest["nextPageToken"] == ""
    assert cast.member.ask("GET", f"{path}/config/1").get_json()["id"] == "config/1"


@pytest.mark.parametrize(
    "config",
    [
        {"url": "ftp://hooks.example/"},
        {"url": "nonsense"},
        {"url": "http://169.254.169.254/latest"},
        {"url": "https://user:password@hooks.example/"},
        {"url": "https://hooks.example/", "token": "two\nlines"},
        {"url": "https://hooks.example/", "token": "whsec_no base64"},
        {"url": "https://hooks.example/", "authentication": {"scheme": "Bearer x"}},
        {"url": "https://hooks.example/", "id": "\u0000"},
        {"authentication": {"scheme": "Bearer"}},
    ],
)
def test_forbidden_url_is_refused(cast: Cast, config: dict[str, Any]) -> None:
    task = cast.member.task("hello")
    answer = cast.member.ask("POST", PATH.format(task=task["id"]), json=config)
    assert (answer.status_code, reason(answer)) == (400, "INVALID_PARAMS")


def test_this_host_and_plain_http_are_refused_unless_operators_allow_them(front: Front, cast: Cast) -> None:
    strict = Client(front, cast.member.prefix, cast.member.authorization, {})
    for url in (
        "http://hooks.example/",
        "https://127.0.0.1/",
        "https://10.0.0.1/",
        "https://hooks.example:99/",
    ):
        answer = strict.send(configuration={"taskPushNotificationConfig": {"url": url}})
        assert (answer.status_code, reason(answer)) == (400, "INVALID_PARAMS")


def test_secret_parts_of_a_push_url_are_not_stored_in_clear(cast: Cast) -> None:
    url = "https://example.com/hooks/path1?key=query1"
    task = cast.member.task("work")
    made = cast.member.ask("POST", PATH.format(task=task["id"]), json={"url": url}).get_json()
    assert made["url"] == url
    with cast.front.services.database.autocommit() as session:
        statement = text("SELECT c::text FROM task_push_configurations c WHERE task_id = :id")
        (kept,) = session.execute(statement, {"id": task["id"]}).scalars()
    assert "https://example.com" in kept
    assert [secret for secret in ("path1", "query1") if secret in kept] == []


def _cut_addresses() -> str:
    """Return the migration's statement that shortens stored addresses."""
    (path,) = Path(versions.__path__[0]).glob("*_push_addresses.py")
    return str(runpy.run_path(str(path))["CUT"])


def test_migration_shortens_stored_urls_to_their_origin(cast: Cast) -> None:
    url = "https://example.com/hooks/path1?key=query1"
    task = cast.member.task("work")
    made = cast.member.ask("POST", PATH.format(task=task["id"]), json={"url": url}).get_json()
    values = {"id": task["id"], "url": "https://someone:pass1@example.com:8443/path1?key=query1"}
    with cast.front.services.database.transaction() as session:
        session.execute(text("UPDATE task_push_configurations SET url = :url WHERE task_id = :id"), values)
        session.execute(text(_cut_addresses()))
        kept = session.execute(
            text("SELECT url FROM task_push_configurations WHERE task_id = :id"), values
        ).scalar_one()
    assert kept == "https://example.com:8443"
    found = cast.member.ask("GET", f"{PATH.format(task=task['id'])}/{made['id']}").get_json()
    assert found["url"] == url
