"""Rows about agents: messages, streams of updates and subscriptions, compared with the published SDK's server.

The product authenticates, admits, queues, leases, and stores every event durably. The SDK's server
(`peers/agents_sdk.py`) does none of this, and stores each task as one row. Both follow the same script. CPU is that of
all processes behind the address, without their idle use. Statements are counted in the log of Postgres, in a run of
their own.
"""

# The multiplication sign is intended.
# ruff: noqa: RUF001

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy

from deploy.embedded.postgres import SUPERUSER
from deploy.process_types import ALLOCATOR
from deploy.supervision.child_processes import Program
from tests.benchmarks.clients import Connection, request_head
from tests.benchmarks.models.clients import Timings, first_event, run_calls, run_events
from tests.benchmarks.peers.agents_sdk import PACE_SECONDS, PIECES, WITHOUT_END
from tests.benchmarks.runner.measurements import CpuMeter, Sample, median, percentile
from tests.benchmarks.runner.product import DEFAULTS, Bench, server_pid
from tests.benchmarks.runner.report import Line, cpu_per, milliseconds
from tests.support.processes.stack import ROOT, Service, Stack, free_port, wait_until

CLIENTS = 16
EVENTS = PIECES + 1
IDLE_SECONDS = 4.0
STATEMENTS = 12
SUBSCRIBED_SECONDS = 0.005
_PIECES = ", ".join(f"'piece {number} '" for number in range(PIECES))
SCRIPT = f"""
rules:
  - match: {{text: now}}
    steps: [{{complete: Done}}]
  - match: {{text: burst}}
    steps: [{{artifact: {{id: count, chunks: [{_PIECES}]}}}}, {{complete: Done}}]
  - match: {{text: paced}}
    steps: [{{artifact: {{id: count, chunks: [{_PIECES}], every: {PACE_SECONDS}}}}}, {{complete: Done}}]
  - match: {{text: {WITHOUT_END}}}
    steps: [{{status: Working}}, {{hang: true}}]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server of agents, and the CPU that its processes use when idle, in CPU seconds a second."""

    name: str
    port: int
    key: str
    meter: CpuMeter
    idle: Mapping[str, float]

    def request(self, operation: str, text: str, **configuration: bool) -> bytes:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
        body = json.dumps({"message": message, "configuration": configuration}).encode()
        return self._head("POST", f"/message:{operation}", length=len(body)) + body

    def send(self, *, callers: int, count: int) -> tuple[Sample, Timings]:
        """Send this many messages, and wait for each response."""
        request = self.request("send", "now")
        return self._metered(lambda: run_calls(self.port, request, callers=callers, count=count))

    def stream(self, text: str, *, count: int) -> tuple[Sample, Timings]:
        """Read this many streams of fifty updates, sixteen at a time."""
        request = self.request("stream", text)
        return self._metered(lambda: run_events(self.port, request, callers=CLIENTS, count=count))

    def subscribe(self, *, count: int) -> list[float]:
        """Subscribe this often, in sequence, to a running task. Return the seconds until each first event."""
        with contextlib.closing(Connection(self.port)) as connection:
            begun = connection.ask(self.request("send", WITHOUT_END, returnImmediately=True), expect=200)
        request = self._head("GET", f"/tasks/{json.loads(begun.body)['task']['id']}:subscribe", length=0)
        return [first_event(self.port, request) for _ in range(count)]

    def _head(self, method: str, path: str, *, length: int) -> bytes:
        return request_head(
            method,
            path,
            length=length,
            Content_Type="application/json",
            A2A_Version="1.0",
            Authorization=f"Bearer {self.key}",
        )

    def _metered(self, act: object) -> tuple[Sample, Timings]:
        found: list[Timings] = []

        def run() -> float:
            found.append(act())  # type: ignore[operator]
            return found[0].seconds

        taken = self.meter.run(run)
        cpu = {part: used - self.idle[part] * taken.seconds for part, used in taken.cpu_by_part.items()}
        return Sample(seconds=taken.seconds, cpu_by_part=cpu), found[0]


def agents(bench: Bench) -> Iterator[Line]:
    """Measure messages, streams of updates, and subscriptions."""
    with _servers(bench) as (ours, theirs):
        for server in (ours, theirs):
            server.send(callers=1, count=40)
        yield from _sends(bench, ours, theirs)
        yield _statements(bench, ours, theirs)
        yield _events(bench, "burst", "at once", ours, theirs)
        yield _events(bench, "paced", f"{PACE_SECONDS * 1000:.0f} ms apart", ours, theirs)
        yield _subscriptions(bench, ours, theirs)


def _sends(bench: Bench, ours: Server, theirs: Server) -> Iterator[Line]:
    for callers, count in ((1, bench.scaled(200, 80)), (CLIENTS, bench.scaled(600, 160))):
        runs = {
            server.name: (server, [server.send(callers=callers, count=count) for _ in range(1)])
            for server in (ours, theirs)
        }
        for _ in range(bench.scaled(2, 1)):
            for server, taken in runs.values():
                taken.append(server.send(callers=callers, count=count))
        samples = {name: median([sample for sample, _ in taken]) for name, (_, taken) in runs.items()}
        calls = {name: [at for _, seen in taken for at in seen.calls] for name, (_, taken) in runs.items()}
        mine, other = (samples[server.name].cpu_seconds * 1000 / count for server in (ours, theirs))
        p50 = {name: milliseconds(percentile(seen, 50)) for name, seen in calls.items()}
        yield Line(
            what=f"message:send, scripted, {callers} clients: CPU, p50",
            figure=f"{mine:.2f} ms, {p50[ours.name]}",
            yardstick=f"a2a-sdk {other:.2f} ms, {p50[theirs.name]}",
            ratio=mine / other,
            target="≤ 1 ×",
            met=mine <= other,
            cpu=cpu_per(samples[ours.name], count, "send"),
        )


def _events(bench: Bench, text: str, what: str, ours: Server, theirs: Server) -> Line:
    count = CLIENTS * bench.scaled(2, 1)
    runs = {server.name: [server.stream(text, count=count)] for server in (ours, theirs)}
    for server in (ours, theirs):
        runs[server.name].append(server.stream(text, count=count))
    samples = {name: median([sample for sample, _ in taken]) for name, taken in runs.items()}
    mine, other = (samples[server.name].cpu_seconds * 1000 / (count * EVENTS) for server in (ours, theirs))
    return Line(
        what=f"{CLIENTS} streams of {EVENTS} events {what}: CPU an event",
        figure=f"{mine:.2f} ms",
        yardstick=f"a2a-sdk {other:.2f} ms",
        ratio=mine / other,
        target="≤ 2 ms",
        met=mine <= 2,
        cpu=cpu_per(samples[ours.name], count * EVENTS, "event"),
    )


def _subscriptions(bench: Bench, ours: Server, theirs: Server) -> Line:
    seen = {server.name: server.subscribe(count=bench.scaled(200, 40)) for server in (ours, theirs)}
    mine, other = (percentile(seen[server.name], 50) for server in (ours, theirs))
    return Line(
        what="subscription to a task that works: first event, p50, p99",
        figure=f"{milliseconds(mine)}, {milliseconds(percentile(seen[ours.name], 99))}",
        yardstick=f"a2a-sdk {milliseconds(other)}, {milliseconds(percentile(seen[theirs.name], 99))}",
        ratio=mine / other,
        target=f"≤ {milliseconds(SUBSCRIBED_SECONDS)}",
        met=mine <= SUBSCRIBED_SECONDS,
    )


def _statements(bench: Bench, ours: Server, theirs: Server) -> Line:
    counted = {server.name: _count_statements(bench, server) for server in (ours, theirs)}
    return Line(
        what="message:send: statements of Postgres, BEGIN and COMMIT among them",
        figure=f"{counted[ours.name]:.1f}",
        yardstick=f"a2a-sdk {counted[theirs.name]:.1f}",
        target=f"≤ {STATEMENTS}",
        met=counted[ours.name] <= STATEMENTS,
    )


def _count_statements(bench: Bench, server: Server, *, count: int = 50) -> float:
    """Count the statements for a message of one client, without those of an idle service."""
    log = bench.servers.postgres.directory / "postgres.log"
    with _logging_statements(bench):
        started_at = time.perf_counter()
        begun = log.stat().st_size
        server.send(callers=1, count=count)
        sent_at = time.perf_counter()
        middle = log.stat().st_size
        time.sleep(IDLE_SECONDS)
        written = log.read_bytes()
    used, idle = (
        sum(part.count(word) for word in (b" LOG:  statement: ", b" LOG:  execute "))
        for part in (written[begun:middle], written[middle:])
    )
    return (used - idle * (sent_at - started_at) / IDLE_SECONDS) / count


@contextlib.contextmanager
def _logging_statements(bench: Bench) -> Iterator[None]:
    engine = sqlalchemy.create_engine(
        bench.servers.postgres.url.replace("postgresql:", "postgresql+psycopg2:", 1),
        isolation_level="AUTOCOMMIT",
    )

    def set_to(value: str) -> None:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"ALTER SYSTEM SET log_statement = '{value}'")
            connection.exec_driver_sql("SELECT pg_reload_conf()")
        time.sleep(0.5)

    set_to("all")
    try:
        yield
    finally:
        set_to("none")
        engine.dispose()


@contextlib.contextmanager
def _servers(bench: Bench) -> Iterator[tuple[Server, Server]]:
    directory = bench.directory / "agents"
    directory.mkdir()
    script = directory / "agent.yaml"
    script.write_text(SCRIPT)
    settings = {"A2A_SCRIPT": str(script)}
    stack = Stack(directory / "quartermaster", bench.servers, settings=ALLOCATOR | DEFAULTS | settings)
    credentials = stack.set_up()
    web, worker, others = stack.web(), stack.worker("agents"), (stack.worker("background"), stack.beat())
    peer = _peer(bench, directory)
    postgres = {"postgres": [server_pid(bench.servers.postgres)]}
    valkeys = {"valkey": [server_pid(valkey) for valkey in bench.servers.valkeys]}
    with stack.running(web, worker, *others):
        peer.start()
        try:
            wait_until(lambda: accepts(peer), "the SDK's server listens")
            background = {"background": [other.pid for other in others]}
            parts = {"web": [web.pid], "worker": [worker.pid], **postgres, **valkeys, **background}
            theirs = {"server": [peer.pid], **postgres}
            yield (
                measured_server("ours", web, credentials["ownerApiKey"], CpuMeter(parts)),
                measured_server("a2a-sdk", peer, "none", CpuMeter(theirs)),
            )
        finally:
            peer.kill()


def measured_server(name: str, service: Service, key: str, meter: CpuMeter) -> Server:
    """Yield a running server with its measured idle use."""
    assert service.port is not None
    idle = meter.run(lambda: time.sleep(IDLE_SECONDS))
    rates = {part: used / idle.seconds for part, used in idle.cpu_by_part.items()}
    return Server(name=name, port=service.port, key=key, meter=meter, idle=rates)


def _peer(bench: Bench, directory: Path) -> Service:
    bench.servers.postgres.create_database("a2a_sdk")
    # The SDK creates its own table, so it owns its database.
    return sdk_server(directory, bench.servers.postgres.database_url("a2a_sdk", role=SUPERUSER))


def sdk_server(directory: Path, *database_url: str) -> Service:
    """Describe the published SDK's server. Without a database, it keeps its tasks in memory."""
    port = free_port()
    program = Program(
        name="a2a-sdk",
        command=(sys.executable, "-m", "tests.benchmarks.peers.agents_sdk", str(port), *database_url),
        directory=ROOT,
        log=directory / "a2a-sdk.log",
    )
    return Service(program, port=port)


def accepts(service: Service) -> bool:
    """Return whether a process listens on the port."""
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", service.port or 0)) == 0
