"""A crowd from one organization, or anonymous, of ten times the size of a pool: another organization is still served.

The web process is real, with small pools. Each crowd meets two of them: one with fair shares, which must serve honest
callers, and one without shares, which cannot.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import requests
from pydantic import SecretStr

from shared.credits.ledger import top_up
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from tests.chaos.neighbours.crowd import ADDRESSES, Behaviour, Crowd
from tests.journeys.conftest import Installation
from tests.support.agents.rest_clients import Client, exchange_token
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.processes.stack import Service, Stack, free_port, wait_until

SLOTS = 6
CROWD = 10 * SLOTS
POOLS = {
    "WEB_THREADS": "64",
    "CONCURRENT_UPLOADS": str(SLOTS),
    "CONCURRENT_SMALL_BODIES": str(SLOTS),
    "CONCURRENT_DOWNLOADS": str(SLOTS),
    "CONCURRENT_MODEL_CALLS": str(SLOTS),
    "SLOT_WAIT_SECONDS": "0.5",
    "UPLOAD_GRACE_SECONDS": "20",
}
UNFAIR = "admission.unfair"
LONG_BYTES = 4 << 20
UNBUFFERED_BYTES = 200 << 10
"""Longer than what arrives whole before a thread reads it."""
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
FORM = "Content-Type: application/x-www-form-urlencoded"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Two organizations at one web process."""

    front: Service
    hostile: Client
    hostile_owner: Client
    hostile_file: Any
    victim: Client
    victim_file: Any

    def crowd(self, request: bytes, *, trickles: bytes = b"", reads: bool = True, size: int = CROWD) -> Crowd:
        """Return a crowd of ten times as many connections as a pool has slots."""
        assert self.front.port is not None
        behaviour = Behaviour(request=lambda _: request, trickles=trickles, reads=reads)
        return Crowd([self.front.port], behaviour, size)


def begin(token: str | None, method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    """Return the first bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode() + body


# The crowds, and the requests of honest callers beside them.


def slow_uploads(scene: Scene) -> Crowd:
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\nContent-Type: text/plain\r\n\r\n'
    head = ("Content-Type: multipart/form-data; boundary=b", f"Content-Length: {LONG_BYTES}")
    path = f"/files/agent-artifacts?operationId={uuid4()}&byteSize={LONG_BYTES - 200}"
    return scene.crowd(begin(scene.hostile.token, "POST", path, *head, body=part), trickles=b"x" * 64)


def slow_bodies(scene: Scene) -> Crowd:
    request = begin(
        scene.hostile_owner.token, "POST", "/v1/chat/completions", JSON, CHUNKED, body=b"1\r\n{\r\n"
    )
    return scene.crowd(request, trickles=b"1\r\n \r\n")


def strangers_bodies(scene: Scene) -> Crowd:
    request = begin(None, "POST", "/oauth/token", FORM, CHUNKED, body=b"6\r\ngrant_\r\n")
    return scene.crowd(request, trickles=b"1\r\nx\r\n")


def unread_downloads(scene: Scene) -> Crowd:
    path = f"/files/{scene.hostile_file['id']}/content"
    return scene.crowd(begin(scene.hostile.token, "GET", path), reads=False)


def held_calls(scene: Scene) -> Crowd:
    body = (
        b'{"model": "scripted/echo", "messages": [{"role": "user", "content": "!tokens 9\\n!stall after 2"}]}'
    )
    length = f"Content-Length: {len(body)}"
    return scene.crowd(
        begin(scene.hostile_owner.token, "POST", "/v1/chat/completions", JSON, length, body=body)
    )


def upload(scene: Scene) -> None:
    succeeded(scene.victim.upload(b"v" * UNBUFFERED_BYTES, operation=uuid4()))


def renew(scene: Scene) -> None:
    """Send a chunked body, which takes a slot; the service checks retention only after it has read the body."""
    deadline = b'{"retentionExpiresAt": "2090-01-01T00:00:00Z"}'
    path = f"/files/{scene.victim_file['id']}/retention"
    headers = {"Content-Type": "application/json"}
    answer = scene.victim.request("PUT", path, data=iter([deadline]), headers=headers)
    assert answer.status_code == 409, answer.text


def download(scene: Scene) -> None:
    assert succeeded(scene.victim.download(scene.victim_file["id"])).content == b"v" * LONG_BYTES


def call(scene: Scene) -> None:
    body = {"model": "scripted/echo", "messages": [{"role": "user", "content": "Hello"}]}
    succeeded(scene.victim.request("POST", "/v1/chat/completions", json=body))


def succeeded(answer: requests.Response) -> requests.Response:
    assert answer.ok, f"{answer.status_code} {answer.text[:200]}"
    return answer


# The response that refuses the crowd's next request.


def refused_upload(scene: Scene) -> None:
    is_problem(scene.hostile.upload(b"h" * UNBUFFERED_BYTES, operation=uuid4()))


def refused_body(scene: Scene) -> None:
    is_openai_error(
        scene.hostile_owner.request(
            "POST", "/v1/chat/completions", data=iter([b"{}"]), headers=dict([JSON.split(": ")])
        )
    )


def refused_form(scene: Scene) -> None:
    """Send forms from the crowd's addresses, until one that holds a slot is refused for its own share."""
    refusals = (_send_form(scene, address) for address in ADDRESSES)
    answer = next(answer for answer in refusals if answer.status_code != 503)
    assert (answer.status_code, answer.json()["error"]) == (429, "temporarily_unavailable")
    assert int(answer.headers["Retry-After"]) >= 1


def _send_form(scene: Scene, address: str) -> requests.Response:
    with requests.Session() as session:
        session.mount("http://", FromAddress(address))
        return session.post(
            f"{scene.front.url}/oauth/token",
            data=iter([b"grant_type=x"]),
            headers=dict([FORM.split(": ")]),
            timeout=20,
        )


def refused_download(scene: Scene) -> None:
    is_problem(scene.hostile.download(scene.hostile_file["id"]))


def refused_call(scene: Scene) -> None:
    body = {"model": "scripted/echo", "messages": [{"role": "user", "content": "Hello"}]}
    is_openai_error(scene.hostile_owner.request("POST", "/v1/chat/completions", json=body))


def is_problem(answer: requests.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (429, "concurrency_limit")
    assert int(answer.headers["Retry-After"]) >= 1


def is_openai_error(answer: requests.Response) -> None:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (
        429,
        "concurrency_limit",
        "rate_limit_error",
    )
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.headers.get("x-should-retry") != "false"


class FromAddress(requests.adapters.HTTPAdapter):
    """Connects from another local address."""

    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, source_address=(self._address, 0), **options)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A crowd, an honest request beside it, and the refusal of the crowd's next request."""

    crowd: Callable[[Scene], Crowd]
    honest: Callable[[Scene], None]
    refused: Callable[[Scene], None]


TRIALS = {
    "slow uploads": Trial(crowd=slow_uploads, honest=upload, refused=refused_upload),
    "slow bodies": Trial(crowd=slow_bodies, honest=renew, refused=refused_body),
    "bodies of strangers": Trial(crowd=strangers_bodies, honest=renew, refused=refused_form),
    "downloads that nobody reads": Trial(crowd=unread_downloads, honest=download, refused=refused_download),
    "model calls that stall": Trial(crowd=held_calls, honest=call, refused=refused_call),
}


@dataclass(frozen=True, kw_only=True)
class Tenants:
    """The tokens of two organizations; the web process is chosen later."""

    hostile: str
    hostile_owner: str
    victim: str

    def at(self, front: Service) -> Scene:
        """Return the scene at a web process."""
        hostile, victim = Client(front.url, self.hostile), Client(front.url, self.victim)
        return Scene(
            front=front,
            hostile=hostile,
            hostile_owner=Client(front.url, self.hostile_owner),
            hostile_file=succeeded(hostile.upload(b"h" * LONG_BYTES, operation=uuid4())).json(),
            victim=victim,
            victim_file=succeeded(victim.upload(b"v" * LONG_BYTES, operation=uuid4())).json(),
        )


@pytest.fixture(scope="module")
def tenants(installation: Installation) -> Iterator[Tenants]:
    """Create an organization beside the existing one."""
    stack = installation.stack
    settings = make_settings(
        database_url=stack.database_url,
        base_url=stack.environment["BASE_URL"],
        encryption_keys=(SecretStr(stack.environment["ENCRYPTION_KEYS"]),),
    )
    database = Database(settings.database_url)
    identity = IdentityFactory(database, settings)
    organization = identity.organization("Hostile")
    with database.transaction() as session:
        top_up(session, organization_id=organization.id, amount=10**9, reference="trial", actor=OPERATOR)
    deployment = identity.deployment(organization.id)
    yield Tenants(
        hostile=identity.access_token(deployment),
        hostile_owner=identity.person(organization.id, Role.WORKSPACE_OWNER, bound=True).api_key,
        victim=exchange_token(installation.front.url, installation.credentials),
    )
    database.dispose()


@pytest.fixture(scope="module")
def worker(stack: Stack) -> Iterator[None]:
    worker = stack.worker("models")
    with stack.running(worker):
        wait_until(lambda: worker.has_logged(" ready."), "the worker is ready")
        yield


@pytest.fixture(scope="module")
def fair(stack: Stack, tenants: Tenants, worker: None) -> Iterator[Scene]:
    """Run a web process with small pools."""
    front = stack.web(port=free_port(), **POOLS)
    with stack.running(front):
        yield tenants.at(front)


@pytest.fixture(scope="module")
def unfair(stack: Stack, tenants: Tenants, worker: None) -> Iterator[Scene]:
    """Run a web process without shares."""
    front = stack.web(port=free_port(), FAULTS=UNFAIR, **POOLS)
    with stack.running(front):
        yield tenants.at(front)


@pytest.mark.parametrize("name", TRIALS)
def test_honest_organization_is_served_beside_a_crowd(fair: Scene, name: str) -> None:
    trial = TRIALS[name]
    with trial.crowd(fair) as crowd:
        wait_until(
            lambda: crowd.answers["429"] or crowd.answers["503"] or trial.crowd is unread_downloads,
            "refusals",
        )
        for _ in range(3):
            trial.honest(fair)
        trial.refused(fair)
        assert requests.get(f"{fair.front.url}/readyz", timeout=60).ok
    wait_until(lambda: succeeds(trial.honest, fair), "everything is as before")


@pytest.mark.parametrize("name", TRIALS)
def test_honest_organization_is_refused_without_shares(unfair: Scene, name: str) -> None:
    trial = TRIALS[name]
    with trial.crowd(unfair):
        wait_until(lambda: not succeeds(trial.honest, unfair), "an honest request fails")
    wait_until(lambda: succeeds(trial.honest, unfair), "everything is as before")


def succeeds(ask: Callable[[Scene], None], scene: Scene) -> bool:
    try:
        ask(scene)
    except (AssertionError, requests.RequestException):
        return False
    return True
