"""Rows about routing: the extra cost of a message that is forwarded to its agent, compared with a direct call.

The agent is the published SDK's server (`peers/agents_sdk.py`), which does the same in both cases, and keeps its tasks
in memory. Its own CPU is not counted. Routing adds authentication, admission, a durable turn with a lease, a request
with token and attribution, and stored events.
"""

import contextlib
import json
from collections.abc import Iterator
from urllib.request import Request, urlopen

from deploy.process_types import ALLOCATOR
from tests.benchmarks.agents import CLIENTS, EVENTS, Server, accepts, measured_server, sdk_server
from tests.benchmarks.runner.measurements import CpuMeter, median, percentile
from tests.benchmarks.runner.product import DEFAULTS, Bench, server_pid
from tests.benchmarks.runner.report import Line, cpu_per, milliseconds
from tests.support.processes.stack import Stack, wait_until

ADDED_SECONDS = 0.015
CPU_MILLISECONDS = 12.0
EGRESS = {"EGRESS_ALLOW_PRIVATE": "true", "EGRESS_ALLOW_HTTP": "true"}


def routing(bench: Bench) -> Iterator[Line]:
    """Measure messages and streams that are forwarded, and those that are sent directly."""
    with _servers(bench) as (ours, agent):
        for server in (ours, agent):
            server.send(callers=1, count=20)
        for callers, count in ((1, bench.scaled(200, 40)), (CLIENTS, bench.scaled(600, 96))):
            yield _sends(bench, ours, agent, callers=callers, count=count)
        yield _stream(bench, ours, agent)


def _sends(bench: Bench, ours: Server, agent: Server, *, callers: int, count: int) -> Line:
    runs = [
        (ours.send(callers=callers, count=count), agent.send(callers=callers, count=count))
        for _ in range(bench.scaled(3, 1))
    ]
    routed, direct = (percentile([at for run in runs for at in run[side][1].calls], 50) for side in (0, 1))
    sample = median([mine[0] for mine, _ in runs])
    used = sample.cpu_seconds * 1000 / count
    is_one = callers == 1
    return Line(
        what=f"message:send sent on, {callers} client{'s' * (not is_one)}: p50",
        figure=f"{milliseconds(routed)}, {milliseconds(routed - direct)} added",
        yardstick=f"directly {milliseconds(direct)}",
        ratio=routed / direct,
        target=f"{'≤ 15 ms added, ' if is_one else ''}≤ {CPU_MILLISECONDS:g} ms CPU",
        met=used <= CPU_MILLISECONDS and (routed - direct <= ADDED_SECONDS or not is_one),
        cpu=cpu_per(sample, count, "send"),
    )


def _stream(bench: Bench, ours: Server, agent: Server) -> Line:
    count = CLIENTS * bench.scaled(2, 1)
    (sample, mine), (_, direct) = (server.stream("burst", count=count) for server in (ours, agent))
    return Line(
        what=f"{CLIENTS} streams of {EVENTS} events sent on: seconds for all",
        figure=f"{mine.seconds:.2f} s",
        yardstick=f"directly {direct.seconds:.2f} s",
        ratio=mine.seconds / direct.seconds,
        cpu=cpu_per(sample, count * EVENTS, "event"),
    )


@contextlib.contextmanager
def _servers(bench: Bench) -> Iterator[tuple[Server, Server]]:
    directory = bench.directory / "routing"
    directory.mkdir()
    stack = Stack(directory / "quartermaster", bench.servers, settings=ALLOCATOR | DEFAULTS | EGRESS)
    credentials = stack.set_up()
    web, worker, others = stack.web(), stack.worker("agents"), (stack.worker("background"), stack.beat())
    agent = sdk_server(directory)
    with stack.running(web, worker, *others):
        agent.start()
        try:
            wait_until(lambda: accepts(agent), "the agent listens")
            _route(web.url, credentials["ownerApiKey"], credentials["deployment"]["id"], agent.url)
            parts = {
                "web": [web.pid],
                "worker": [worker.pid],
                "background": [other.pid for other in others],
                "postgres": [server_pid(bench.servers.postgres)],
                "valkey": [server_pid(valkey) for valkey in bench.servers.valkeys],
            }
            yield (
                measured_server("ours", web, credentials["ownerApiKey"], CpuMeter(parts)),
                measured_server("directly", agent, "none", CpuMeter({"server": [agent.pid]})),
            )
        finally:
            agent.kill()


def _route(base_url: str, key: str, deployment_id: str, agent_url: str) -> None:
    """Configure the agent as a deployment's endpoint, and check that it responds."""
    path = f"{base_url}/admin/deployments/{deployment_id}/endpoint"
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    body = json.dumps({"url": agent_url}).encode()
    with urlopen(Request(path, data=body, headers=headers, method="PUT"), timeout=30):
        pass
    with urlopen(Request(f"{path}/check", headers=headers, method="POST"), timeout=60) as answer:
        report = json.load(answer)
    assert report["isUsable"], report["problems"]
