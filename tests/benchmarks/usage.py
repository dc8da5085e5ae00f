"""The row about usage: the cost of a report over each window, for an organization with ten million calls in it.

The reports read daily and hourly sums, and records at the edges. The yardstick is the sum over the records.
"""

import json
import statistics
from collections.abc import Iterator

import psycopg2

from shared.credits.usage.rollups import roll_up_usage
from shared.credits.usage.usage_reports import Window
from shared.db.database import Database
from shared.ids import new_id
from tests.benchmarks.clients import Connection, request_head
from tests.benchmarks.runner.measurements import CpuMeter
from tests.benchmarks.runner.product import Bench, Front
from tests.benchmarks.runner.report import Line, milliseconds
from tests.benchmarks.usage_inventory import analyze, begin_rollups, record_usage

MODELS = 10
USERS = 10
TARGET_SECONDS = 0.050
CUTS = ("group_by=model", "group_by=model,principal", "group_by=model&interval=day", "interval=hour")
_PLAIN = """
SELECT model, count(*), sum(prompt_tokens), sum(completion_tokens), sum(cost) FROM usage_records
WHERE organization_id = %s AND occurred_at >= now() - %s GROUP BY 1
"""


def usage_windows(bench: Bench) -> Iterator[Line]:
    """Request each window by HTTP, in sequence."""
    records, asked = bench.scaled(10_000_000, 100_000), bench.scaled(50, 15)
    front = bench.lone_front("usage")
    url = front.stack.administrator_url
    users = [str(new_id()) for _ in range(USERS)]
    record_usage(
        url, records, organizations=[front.organization_id], users=users, models=MODELS, with_money=False
    )
    begin_rollups(url)
    database = Database(url.replace("postgresql://", "postgresql+psycopg2://", 1))
    groups = roll_up_usage(database)
    database.dispose()
    analyze(url)
    for window in Window:
        for cut in CUTS:
            yield _window(bench, front, window, cut, records=records, groups=groups, asked=asked)


def _window(
    bench: Bench, front: Front, window: Window, cut: str, *, records: int, groups: int, asked: int
) -> Line:
    key = json.loads((front.stack.directory / "credentials.json").read_text())["ownerApiKey"]
    request = request_head("GET", f"/v1/usage?window={window}&{cut}", Authorization=f"Bearer {key}")
    connection = Connection(front.port)
    for _ in range(5):
        connection.ask(request, expect=200)
    times: list[float] = []

    def ask() -> None:
        times.extend(connection.ask(request, expect=200).seconds for _ in range(asked))

    sample = bench.meter(front).run(ask)
    connection.close()
    seconds = statistics.median(times)
    plain = _plain_seconds(bench, front, window)
    return Line(
        what=f"usage of {window} ({cut}) over {records} records, {groups} hourly sums",
        figure=milliseconds(seconds),
        yardstick=f"from the records {milliseconds(plain)}",
        ratio=seconds / plain,
        target=f"≤ {TARGET_SECONDS * 1000:.0f} ms",
        met=seconds <= TARGET_SECONDS,
        cpu=f"{sample.cpu_seconds * 1000 / asked:.2f} ms/report",
    )


def _plain_seconds(bench: Bench, front: Front, window: Window) -> float:
    connection = psycopg2.connect(front.stack.administrator_url)

    def ask() -> None:
        with connection.cursor() as cursor:
            cursor.execute(_PLAIN, (front.organization_id, window.length))
            cursor.fetchall()

    sample = CpuMeter({"postgres": [bench.postgres_pid]}).run(ask)
    connection.close()
    return sample.seconds
