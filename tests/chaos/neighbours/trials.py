"""One trial for each pool: how a hostile client occupies its slots, and what an honest neighbor requests meanwhile."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import requests

from tests.chaos.neighbours.crowd import Behaviour, Crowd
from tests.chaos.neighbours.endpoints import PostedUpdates, SilentEndpoint
from tests.chaos.neighbours.tenants import Tenant, succeeded
from tests.support.agents.rest_clients import Client
from tests.support.data.media_sources import Handler, MediaSource, Respond, begin, content

TIMES = 10
"""The crowd is so many times the size of the pool."""
POLL_SECONDS = 0.02
SLOW_STREAM = {"chunks": 500, "delay_seconds": 2.0}
LARGE_FILE_BYTES = 24 << 20
LONG_BODY_BYTES = 1 << 20
GATHERED_BYTES = 256 << 10
"""More than a front gathers before a thread reads it."""
DRIP_SECONDS = 0.5
READY_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The tenants, the ports of the web processes, and the size of each pool over all processes."""

    hostile: Tenant
    victim: Tenant
    ports: Sequence[int]
    source: MediaSource
    silent: SilentEndpoint
    posted: PostedUpdates
    sizes: Mapping[str, int]
    max_wait_seconds: float

    def crowd(self, pool: str, behaviour: Behaviour) -> Crowd:
        """Return a crowd of ten times as many connections as a pool has slots."""
        return Crowd(self.ports, behaviour, TIMES * self.sizes[pool])


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A pool, its hostile use within a block, and one honest request, which raises on failure."""

    pool: str
    attack: Callable[[Scene], Any]
    ask: Callable[[Scene], None]


def _strangers(scene: Scene) -> Crowd:
    """Anonymous clients without a credential: a third sends nothing, a third half a head, a third half a body."""
    half_body = (
        b"POST /oauth/token HTTP/1.1\r\nHost: q\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    )
    requests_of_strangers = (
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: q\r\nX-Half",
        half_body + b"Content-Length: 1000\r\n\r\ngrant_type=client",
    )
    return scene.crowd("strangers", Behaviour(request=lambda number: requests_of_strangers[number % 3]))


def _long_bodies(scene: Scene) -> Crowd:
    """Bodies of model calls that arrive slowly and exceed the size that is buffered before a thread reads them."""
    head = ("Content-Type: application/json", f"Content-Length: {LONG_BODY_BYTES}")
    tenant = scene.hostile
    request = tenant.bearer(tenant.owner.token, "POST", "/v1/chat/completions", *head, body=b'{"model": "')
    return scene.crowd("bodies", Behaviour(request=lambda _: request, trickles=b"x"))


def _uploads(scene: Scene) -> Crowd:
    boundary = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\nContent-Type: text/plain\r\n\r\n'
    head = ("Content-Type: multipart/form-data; boundary=b", f"Content-Length: {LONG_BODY_BYTES}")
    tenant = scene.hostile

    def request(_: int) -> bytes:
        path = f"/files/agent-artifacts?operationId={uuid4()}&byteSize={LONG_BODY_BYTES - 200}"
        return tenant.bearer(tenant.agent.token, "POST", path, *head, body=boundary)

    return scene.crowd("uploads", Behaviour(request=request, trickles=b"x" * 64))


def _downloads(scene: Scene) -> Crowd:
    uploaded = _upload(scene.hostile.agent, b"x" * LARGE_FILE_BYTES)
    tenant = scene.hostile
    request = tenant.bearer(tenant.agent.token, "GET", f"/files/{uploaded['id']}/content")
    return scene.crowd("downloads", Behaviour(request=lambda _: request, reads=False))


def _model_calls(model: str, *, stream: bool, pool: str = "calls") -> Callable[[Scene], Crowd]:
    def attack(scene: Scene) -> Crowd:
        tenant = scene.hostile
        request = tenant.json("/v1/chat/completions", tenant.chat(model, stream=stream, **SLOW_STREAM))
        return scene.crowd(pool, Behaviour(request=lambda _: request))

    return attack


def _task_streams(scene: Scene) -> Crowd:
    tenant = scene.hostile
    path = f"{tenant.agent_path}/message:stream"
    return scene.crowd(
        "task streams",
        Behaviour(request=lambda _: tenant.json(path, tenant.message("hang"), "A2A-Version: 1.0")),
    )


@contextmanager
def _turns(scene: Scene) -> Iterator[None]:
    """Messages whose script hangs, and whose senders do not wait."""
    tenant, path = scene.hostile, f"{scene.hostile.agent_path}/message:send"

    def send(_: int) -> str | None:
        body = tenant.message("hang", returnImmediately=True)
        answer = tenant.owner.request("POST", path, json=body, headers={"A2A-Version": "1.0"})
        return str(answer.json()["task"]["id"]) if answer.ok else None

    with ThreadPoolExecutor(8) as threads:
        tasks = list(threads.map(send, range(TIMES * scene.sizes["turns"])))
        try:
            yield
        finally:
            cancel = f"{tenant.agent_path}/tasks/%s:cancel"
            list(threads.map(lambda task: tenant.owner.request("POST", cancel % task), filter(None, tasks)))


@contextmanager
def _fetches(scene: Scene) -> Iterator[None]:
    """Attachments whose source responds slowly, pushed by several distributions."""
    dripping = scene.source.serve("/dripping", _drip(scene.source))

    def push(number: int) -> None:
        with suppress(
            AssertionError
        ):  # Raise the distribution's own limits, so that only the pool's share limits it.
            scene.hostile.push(dripping, distribution=number)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(push, range(TIMES * scene.sizes["fetches"])))
        yield


@contextmanager
def _deliveries(scene: Scene) -> Iterator[None]:
    """Tasks whose updates go to endpoints that accept connections and never respond."""
    tenant, path = scene.hostile, f"{scene.hostile.agent_path}/message:send"

    def send(number: int) -> None:
        url = f"{scene.silent.url}/{number}"
        body = tenant.message("work", returnImmediately=True, taskPushNotificationConfig={"url": url})
        tenant.owner.request("POST", path, json=body, headers={"A2A-Version": "1.0"})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(send, range(TIMES * scene.sizes["deliveries"])))
        yield


def _drip(source: MediaSource) -> Respond:
    def respond(handler: Handler) -> None:
        begin(handler, 200, {"Content-Type": "text/plain"})
        while not source.is_over.wait(DRIP_SECONDS):
            handler.wfile.write(b"x")

    return respond


def _ask_json_and_form(scene: Scene) -> None:
    victim = scene.victim
    answer = requests.post(
        f"{victim.front}/oauth/token",
        data={"grant_type": "client_credentials"},
        auth=(str(victim.deployment.deployment.client_id), victim.deployment.credential.secret.value),
        timeout=scene.max_wait_seconds,
    )
    succeeded(answer)
    succeeded(requests.get(f"{victim.front}/healthz", timeout=scene.max_wait_seconds))


def _ask_call(*models: str) -> Callable[[Scene], None]:
    def ask(scene: Scene) -> None:
        for model in models:
            scene.victim.post("/v1/chat/completions", scene.victim.chat(model))
        body = scene.victim.chat(models[0], stream=True)
        streamed = succeeded(scene.victim.owner.request("POST", "/v1/chat/completions", json=body))
        if b"[DONE]" not in streamed.content or b'"error"' in streamed.content:
            raise AssertionError(f"a broken stream: {streamed.content[:200]!r}")

    return ask


def _ask_long_call(scene: Scene) -> None:
    body = scene.victim.chat("fake/chat")
    body["messages"][0]["content"] = "x" * GATHERED_BYTES
    scene.victim.post("/v1/chat/completions", body)
    scene.victim.post("/v1/chat/completions", scene.victim.chat("fake/chat"))


def _ask_readiness_and_calls(scene: Scene) -> None:
    for port in scene.ports:
        began = time.monotonic()
        succeeded(requests.get(f"http://127.0.0.1:{port}/readyz", timeout=scene.max_wait_seconds))
        if time.monotonic() - began > READY_SECONDS:
            raise AssertionError(f"ready after {time.monotonic() - began:.1f} s")
    _ask_call("fake/chat")(scene)


def _ask_upload(scene: Scene) -> None:
    _upload(scene.victim.agent, b"y" * 4096)
    _upload(scene.victim.agent, b"y" * GATHERED_BYTES)


def _ask_download(scene: Scene) -> None:
    uploaded = _upload(scene.victim.agent, b"z" * 4096)
    if succeeded(scene.victim.agent.download(uploaded["id"])).content != b"z" * 4096:
        raise AssertionError("something else was downloaded")


def _ask_agent(scene: Scene) -> None:
    victim = scene.victim
    answer = victim.post(
        f"{victim.agent_path}/message:send", victim.message("ping"), **{"A2A-Version": "1.0"}
    )
    if answer["message"]["parts"][0]["text"] != "pong":
        raise AssertionError(f"the agent says {answer}")


def _ask_agent_stream(scene: Scene) -> None:
    victim = scene.victim
    answer = victim.owner.request(
        "POST",
        f"{victim.agent_path}/message:stream",
        json=victim.message("work"),
        headers={"A2A-Version": "1.0"},
    )
    if b"TASK_STATE_COMPLETED" not in succeeded(answer).content:
        raise AssertionError(f"the stream says {answer.content[:300]!r}")


def _ask_import(scene: Scene) -> None:
    url = scene.source.serve("/cat", content(b"meow", "text/plain"))
    pushed = scene.victim.push(url)
    give_up_at = time.monotonic() + scene.max_wait_seconds
    while (state := scene.victim.read_import(pushed["importId"])["state"]) != "Stored":
        if state == "Failed" or time.monotonic() > give_up_at:
            raise AssertionError(f"the import is {state}")
        time.sleep(POLL_SECONDS)


def _ask_push(scene: Scene) -> None:
    name = uuid4().hex
    configuration = {"taskPushNotificationConfig": {"url": f"{scene.posted.url}/{name}"}}
    body = scene.victim.message("work", returnImmediately=True, **configuration)
    scene.victim.post(f"{scene.victim.agent_path}/message:send", body, **{"A2A-Version": "1.0"})
    scene.posted.wait_for(name, scene.max_wait_seconds)


def _upload(agent: Client, body: bytes) -> dict[str, Any]:
    uploaded: dict[str, Any] = succeeded(agent.upload(body, operation=uuid4())).json()
    return uploaded


TRIALS = {
    "strangers": Trial(pool="strangers", attack=_strangers, ask=_ask_json_and_form),
    "bodies": Trial(pool="bodies", attack=_long_bodies, ask=_ask_long_call),
    "uploads": Trial(pool="uploads", attack=_uploads, ask=_ask_upload),
    "downloads": Trial(pool="downloads", attack=_downloads, ask=_ask_download),
    "streams": Trial(
        pool="calls",
        attack=_model_calls("slow/chat", stream=True),
        ask=_ask_call("fake/chat", "slow/chat"),
    ),
    "calls": Trial(pool="calls", attack=_model_calls("slow/chat", stream=False), ask=_ask_call("fake/chat")),
    "held-streams": Trial(
        pool="held streams",
        attack=_model_calls("slow/chat", stream=True, pool="held streams"),
        ask=_ask_readiness_and_calls,
    ),
    "task-streams": Trial(pool="task streams", attack=_task_streams, ask=_ask_agent_stream),
    "turns": Trial(pool="turns", attack=_turns, ask=_ask_agent),
    "fetches": Trial(pool="fetches", attack=_fetches, ask=_ask_import),
    "deliveries": Trial(pool="deliveries", attack=_deliveries, ask=_ask_push),
}
