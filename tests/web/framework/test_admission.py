"""A well-behaved caller is served although another organization requests ten times the slots of a pool.

Each pool has a `Trial`: the hostile request, the honest request, and the refusals. With fair sharing switched off,
every trial must fail.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text
from werkzeug.test import TestResponse

from deploy.embedded.valkey import EmbeddedValkey
from shared import failpoints
from shared.fairness.admission import ANONYMOUS, ConcurrencyLimited, Pool, PoolKey
from shared.identity.access.roles import Role
from tests.support.data.identity import make_settings
from tests.support.files.bodies import CONTENT_TYPE, multipart
from tests.support.files.file_requests import Asker, refuse, succeed
from tests.support.processes.stack import wait_until
from tests.support.web.openapi_documents import openapi_document
from tests.support.web.web_process import Front, open_front
from tests.web.crowds import HeldBody, Request, crowd
from tests.web.files.conftest import agent_of, on_behalf_of
from web.dependencies.pools import build_pools
from web.framework.admission import credential_key
from web.framework.routes import PROBES
from web.http.slots import Admission

SLOTS = 6
TIMES = 10
LONG = 300_000
UNFAIR = "admission.unfair"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A front with small pools, and two organizations."""

    front: Front
    gate: threading.Event
    hostile: Asker
    victim: Asker
    hostile_deployment: UUID
    hostile_file: Any
    victim_file: Any
    client: tuple[str, str]

    def ask(
        self, asker: Asker | None, method: str, path: str, *, address: str = "192.0.2.1", **options: Any
    ) -> TestResponse:
        """Send one request on its own connection."""
        return self.front.app.test_client().open(
            path,
            method=method,
            headers=dict(asker.headers) if asker is not None else {},
            environ_overrides={"REMOTE_ADDR": address, **options.pop("environ", {})},
            **{"buffered": True, **options},
        )

    def held(
        self,
        asker: Asker | None,
        method: str,
        path: str,
        body: bytes,
        content_type: str,
        address: str = "192.0.2.66",
    ) -> TestResponse:
        """Send a request whose body stops in the middle until the gate is opened."""
        sent = {"wsgi.input": HeldBody(body, self.gate), "CONTENT_LENGTH": str(len(body))}
        return self.ask(asker, method, path, address=address, content_type=content_type, environ=sent)


@contextmanager
def open_scene(database_url: str, valkey_url: str, directory: Path, **settings: object) -> Iterator[Scene]:
    limits = {"slot_wait_seconds": 0.2, "upload_grace_seconds": 60.0, **settings}
    with open_front(database_url, valkey_url, directory, **limits) as front:
        identity = front.identity
        hostile_organization, organization = identity.organization("Hostile").id, identity.organization().id
        deployment, other = identity.deployment(organization), identity.deployment(hostile_organization)
        hostile, victim = agent_of(front, other), agent_of(front, deployment)
        yield Scene(
            front=front,
            gate=threading.Event(),
            hostile=hostile,
            victim=victim,
            hostile_deployment=other.deployment.id,
            hostile_file=succeed(hostile.upload(b"h" * LONG), 201),
            victim_file=succeed(victim.upload(b"v" * LONG), 201),
            client=(str(deployment.deployment.client_id), deployment.credential.secret.value),
        )


# Hostile and honest requests.


def upload_path(size: int) -> str:
    return f"/files/agent-artifacts?operationId={uuid4()}&byteSize={size}"


def hold_an_upload(scene: Scene, _: int) -> TestResponse:
    return scene.held(scene.hostile, "POST", upload_path(3), multipart(b"abc"), CONTENT_TYPE)


def hold_a_renewal(scene: Scene, _: int) -> TestResponse:
    path = f"/files/{scene.hostile_file['id']}/retention"
    return scene.held(scene.hostile, "PUT", path, b'{"retentionExpiresAt": null}', "application/json")


def hold_a_model_call(scene: Scene, _: int) -> TestResponse:
    return scene.held(scene.hostile, "POST", "/v1/chat/completions", b'{"model": "none"}', "application/json")


def hold_a_message(scene: Scene, _: int) -> TestResponse:
    path = f"/agents/{scene.hostile_deployment}/message:send"
    return scene.held(scene.hostile, "POST", path, b'{"message": {}}', "application/json")


def hold_a_form_as_a_stranger(scene: Scene, number: int, *, addresses: int = 1) -> TestResponse:
    form = b"grant_type=client_credentials&client_id=x&client_secret=x"
    address = f"198.51.100.{number % addresses}"
    return scene.held(
        None, "POST", "/oauth/token", form, "application/x-www-form-urlencoded", address=address
    )


def hold_a_download(scene: Scene, _: int) -> TestResponse:
    answer = scene.ask(scene.hostile, "GET", f"/files/{scene.hostile_file['id']}/content", buffered=False)
    with answer:
        if answer.status_code == 200:
            assert scene.gate.wait(90)
        else:
            answer.make_sequence()
    return answer


def upload(scene: Scene) -> None:
    succeed(scene.victim.upload(), 201)


def renew(scene: Scene) -> None:
    path = f"/files/{scene.victim_file['id']}/retention"
    refuse(
        scene.ask(scene.victim, "PUT", path, json={"retentionExpiresAt": "2090-01-01T00:00:00Z"}),
        409,
        INDEFINITE,
    )


def read_metadata(scene: Scene) -> None:
    succeed(scene.victim.metadata(scene.victim_file), 200)


def download(scene: Scene) -> None:
    assert scene.victim.content(scene.victim_file).data == b"v" * LONG


def get_a_token(scene: Scene) -> None:
    form = {
        "grant_type": "client_credentials",
        "client_id": scene.client[0],
        "client_secret": scene.client[1],
    }
    assert scene.ask(None, "POST", "/oauth/token", data=form).status_code == 200


INDEFINITE = "retention_is_indefinite"


# Refusals.


def is_problem(answer: TestResponse) -> bool:
    return answer.content_type == "application/problem+json" and answer.json["code"] == "concurrency_limit"  # type: ignore[index]


def is_openai_error(answer: TestResponse) -> bool:
    error = answer.json["error"]  # type: ignore[index]
    may_retry = answer.headers.get("x-should-retry") != "false"
    return may_retry and (error["code"], error["type"]) == ("concurrency_limit", "rate_limit_error")


def is_a2a_error(answer: TestResponse) -> bool:
    error = answer.json["error"]  # type: ignore[index]
    return (error["status"], error["details"][0]["reason"]) == ("RESOURCE_EXHAUSTED", "CONCURRENCY_LIMIT")


def is_oauth_error(answer: TestResponse) -> bool:
    return bool(answer.json["error"] == "temporarily_unavailable")  # type: ignore[index]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A way to exhaust a pool, and a request that must succeed meanwhile."""

    pool: str
    hostile: Callable[[Scene, int], TestResponse]
    victim: Callable[[Scene], None]
    is_refusal: Callable[[TestResponse], bool] = is_problem


ONE_ADDRESS = partial(hold_a_form_as_a_stranger, addresses=1)
MANY_ADDRESSES = partial(hold_a_form_as_a_stranger, addresses=64)
TRIALS = {
    "uploads": Trial(pool="uploads", hostile=hold_an_upload, victim=upload),
    "JSON bodies": Trial(pool="small_bodies", hostile=hold_a_renewal, victim=renew),
    "bodies of model calls": Trial(
        pool="small_bodies", hostile=hold_a_model_call, victim=renew, is_refusal=is_openai_error
    ),
    "bodies of messages": Trial(
        pool="small_bodies", hostile=hold_a_message, victim=renew, is_refusal=is_a2a_error
    ),
    "a stranger's forms": Trial(
        pool="small_bodies", hostile=ONE_ADDRESS, victim=renew, is_refusal=is_oauth_error
    ),
    "64 strangers' forms": Trial(
        pool="small_bodies", hostile=MANY_ADDRESSES, victim=renew, is_refusal=is_oauth_error
    ),
    "a stranger's forms beside another's": Trial(
        pool="small_bodies", hostile=ONE_ADDRESS, victim=get_a_token, is_refusal=is_oauth_error
    ),
    "downloads": Trial(pool="downloads", hostile=hold_a_download, victim=download),
    "threads": Trial(pool="requests", hostile=hold_a_renewal, victim=read_metadata),
    "threads, by strangers": Trial(
        pool="requests", hostile=MANY_ADDRESSES, victim=read_metadata, is_refusal=is_oauth_error
    ),
}
SIZES: dict[str, dict[str, object]] = {
    "uploads": {"concurrent_uploads": SLOTS},
    "small_bodies": {"concurrent_small_bodies": SLOTS},
    "downloads": {"concurrent_downloads": SLOTS},
    "requests": {"web_threads": 2 * SLOTS},
}


def try_it(scene: Scene, trial: Trial) -> None:
    """Send ten times as many hostile requests as the pool has slots, and honest requests at the same time."""
    pool: Pool = getattr(scene.front.services.pools, trial.pool)
    threads = scene.front.services.pools.requests
    before = threads.in_use  # by responses that this test has not read completely
    requests: list[Request] = [partial(trial.hostile, scene, number) for number in range(TIMES * pool.slots)]
    with crowd(requests, scene.gate) as hostile:
        hostile.wait_until_settled(pool)
        for _ in range(3):
            trial.victim(scene)
        scene.gate.set()
        refused = hostile.refusals()
        assert len(refused) > len(requests) // 2, hostile.answers[0].result().text
        for answer in refused:
            if answer.status_code == 429:
                assert trial.is_refusal(answer), answer.text
                assert int(answer.headers["Retry-After"]) >= 1
    assert threads.in_use == before
    assert pool.in_use in (0, before)


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The only blob store of this module's database."""
    return tmp_path_factory.mktemp("blobs")


@pytest.fixture
def armed() -> Iterator[None]:
    """Disable fair sharing in pools that are created from now on."""
    failpoints.arm(UNFAIR)
    yield
    failpoints._armed.pop(UNFAIR)


@pytest.mark.parametrize("name", TRIALS)
def test_an_honest_caller_is_served_beside(
    name: str, database_url: str, valkey_server: EmbeddedValkey, blobs: Path
) -> None:
    trial = TRIALS[name]
    with open_scene(database_url, valkey_server.url, blobs, **SIZES[trial.pool]) as scene:
        try_it(scene, trial)


@pytest.mark.usefixtures("armed")
@pytest.mark.parametrize("name", TRIALS)
def test_every_trial_fails_without_fair_sharing(
    name: str, database_url: str, valkey_server: EmbeddedValkey, blobs: Path
) -> None:
    trial = TRIALS[name]
    with (
        open_scene(database_url, valkey_server.url, blobs, **SIZES[trial.pool]) as scene,
        pytest.raises(AssertionError),
    ):
        try_it(scene, trial)


# The tenant that a request counts for, and the release of its slots.


@pytest.fixture(scope="module")
def scene(database_url: str, valkey_server: EmbeddedValkey, blobs: Path) -> Iterator[Scene]:
    """A front with enough slots for all requests."""
    with open_scene(database_url, valkey_server.url, blobs) as scene:
        yield scene


def tenants(pool: Pool) -> dict[Any, int]:
    """Return the number of a pool's slots that each tenant uses."""
    return {name: tenant.use for name, tenant in pool._tenants.items()}


def test_a_download_by_link_is_counted_for_the_organization_of_the_file(scene: Scene) -> None:
    file = scene.victim_file
    path = f"/files/{file['id']}/versions/{file['versionId']}/grants"
    link = succeed(scene.ask(scene.victim, "POST", path), 201)["url"]
    pools = scene.front.services.pools
    before = tenants(pools.requests).get(scene.victim.organization_id, 0)
    with scene.ask(None, "GET", link, buffered=False) as answer:
        assert answer.status_code == 200
        assert tenants(pools.downloads) == {scene.victim.organization_id: 1}
        assert tenants(pools.requests)[scene.victim.organization_id] == before + 1
    assert tenants(pools.downloads) == {}


def test_attributed_request_counts_for_the_payer(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    front, moves = scene.front, []
    principal = front.identity.principal(scene.hostile.organization_id or uuid4()).id
    deployment = front.identity.deployment(scene.victim.organization_id or uuid4())
    payer = scene.hostile.organization_id or uuid4()
    asker = on_behalf_of(front, deployment, principal, payer_id=payer)
    move = Admission.move

    def note(admission: Admission, key: PoolKey) -> None:
        moves.append((admission.key.tenant, key.tenant))
        move(admission, key)

    monkeypatch.setattr(Admission, "move", note)
    scene.ask(asker, "GET", "/files")
    assert moves == [(scene.victim.organization_id, payer)]


def test_a_user_without_an_organization_counts_among_strangers(scene: Scene) -> None:
    front = scene.front
    person = front.identity.person(scene.hostile.organization_id or uuid4(), Role.MEMBER)
    with front.services.database.transaction() as session:
        session.execute(
            text("UPDATE users SET active_organization_id = NULL WHERE id = :id"), {"id": person.user_id}
        )
        session.execute(text("DELETE FROM memberships WHERE user_id = :id"), {"id": person.user_id})
    credential = front.services.authenticator.authenticate(person.authorization)
    assert credential_key(credential) == PoolKey(ANONYMOUS, person.user_id)


def test_an_operator_without_an_organization_is_a_tenant_alone(scene: Scene) -> None:
    operator = scene.front.identity.operator()
    credential = scene.front.services.authenticator.authenticate(operator.authorization)
    assert credential_key(credential).tenant == operator.user_id


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_probes_never_wait_for_a_slot(scene: Scene, path: str) -> None:
    pool = scene.front.services.pools.requests
    with ExitStack() as held:
        while slot := pool.try_acquire(PoolKey(uuid4(), None)):
            held.enter_context(slot)
        assert scene.ask(None, "GET", path).status_code == 200
        refused = scene.ask(None, "GET", "/problems")
        refuse(refused, 503, "unavailable")
        assert refused.headers["Retry-After"] == "1"


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/files", 401)])
def test_response_without_a_slot_closes_its_connection(scene: Scene, path: str, status: int) -> None:
    """Otherwise a client could collect such responses without reading them."""
    answer = scene.ask(None, "GET", path)
    assert (answer.status_code, answer.headers["Connection"]) == (status, "close")
    assert "Connection" not in scene.ask(None, "GET", "/problems").headers


def test_response_holds_its_slot_until_it_has_been_sent(scene: Scene) -> None:
    pool = scene.front.services.pools.requests
    before = pool.in_use
    with scene.ask(None, "GET", "/problems", buffered=False):
        assert pool.in_use == before + 1
    assert pool.in_use == before


def test_requests_that_bring_the_same_credential_wait_for_one_lookup(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator = scene.front.services.authenticator
    looked_up: list[str | None] = []
    recognize = authenticator.authenticate

    def slowly(authorization: str | None) -> Any:
        looked_up.append(authorization)
        assert scene.gate.wait(90)
        return recognize(authorization)

    monkeypatch.setattr(authenticator, "authenticate", slowly)
    path = f"/files/{scene.victim_file['id']}"
    asked: list[Request] = [
        partial(scene.ask, scene.victim, "GET", path, address=f"192.0.2.{number}") for number in range(40)
    ]
    with crowd(asked, scene.gate) as requests:
        wait_until(lambda: bool(looked_up), "a lookup has begun")
        time.sleep(0.1)
        assert len(looked_up) == 1
        scene.gate.set()
        assert requests.statuses() == {200: 40}
    scene.gate.clear()


def test_one_address_does_not_use_up_the_lookups(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    authenticator, pool = scene.front.services.authenticator, scene.front.services.pools.lookups
    recognize = authenticator.authenticate

    def slowly(authorization: str | None) -> Any:
        if "invented" in (authorization or ""):
            assert scene.gate.wait(90)
        return recognize(authorization)

    monkeypatch.setattr(authenticator, "authenticate", slowly)

    def guess(number: int) -> TestResponse:
        headers = {"Authorization": f"Bearer invented{number}"}
        return scene.ask(Asker(front=scene.front, headers=headers), "GET", "/files", address="198.51.100.1")

    with crowd([partial(guess, number) for number in range(4 * pool.slots)], scene.gate) as guesses:
        guesses.wait_until_settled(pool)
        succeed(scene.ask(scene.victim, "GET", f"/files/{scene.victim_file['id']}"), 200)
        scene.gate.set()
        assert guesses.statuses()[429] > 2 * pool.slots
    scene.gate.clear()


def test_failed_handler_releases_its_slots(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    pools = scene.front.services.pools
    before = pools.requests.in_use
    monkeypatch.setattr(scene.front.services.blobs, "open", lambda *_, **__: 1 / 0)
    assert scene.victim.content(scene.victim_file).status_code == 500
    assert (pools.requests.in_use, pools.downloads.in_use) == (before, 0)


def test_threads_are_divided_so_that_some_are_left_for_health_checks() -> None:
    for threads in (8, 16, 64, 544, 1024):
        pools = build_pools(make_settings(web_threads=threads))
        taken = sum(pool.slots + pool._room for pool in (pools.requests, pools.lookups))
        assert threads - taken > 0


def test_waits_and_refusals_are_counted_by_pool(scene: Scene) -> None:
    pool = scene.front.services.pools.uploads
    labels = {"pool": "uploads", "reason": "tenant"}
    before = REGISTRY.get_sample_value("quartermaster_pool_refusals_total", labels) or 0
    key = PoolKey("one", None)
    with ExitStack() as held:
        while slot := pool.try_acquire(key):
            held.enter_context(slot)
        assert REGISTRY.get_sample_value("quartermaster_pool_in_use", {"pool": "uploads"}) == pool.in_use
        with pytest.raises(ConcurrencyLimited):
            pool.acquire(key, waited_seconds=math.inf)
    assert REGISTRY.get_sample_value("quartermaster_pool_refusals_total", labels) == before + 1


def test_every_operation_except_probes_documents_refusals(scene: Scene) -> None:
    document: Any = openapi_document()
    silent = {
        path
        for path, methods in document["paths"].items()
        for operation in methods.values()
        if "429" not in operation["responses"]
    }
    assert silent == PROBES
    assert "concurrency_limit" in scene.ask(None, "GET", "/problems").text
