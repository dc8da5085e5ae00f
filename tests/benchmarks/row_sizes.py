"""Measure the size of rows that are kept, with their indexes: `python -m tests.benchmarks.row_sizes [COUNT]`.

Rows are as the service writes them, in order of time, for some of a hundred organizations and ten models. The
runbook's figures (deploy/README.md#growth) come from here.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg2

from deploy.embedded.postgres import EmbeddedPostgres
from tests.support.servers.prepared_postgres import make_template

COUNT = 100_000
_SOMEBODY = "(SELECT ids[1 + mod(n, 100)] FROM somebody)"
_MOMENT = "now() - interval '60 days' + n * interval '10 seconds'"
_SUMS = f"""
    SELECT {_SOMEBODY}, date_trunc('{{step}}', {_MOMENT}, 'UTC'), 'acme/model-' || mod(n, 10), uuidv7(), NULL, NULL,
        NULL, uuidv7(), NULL, 40, 40000, 9000, 0, 0, 0, 123456 FROM generate_series(1, %(count)s) AS n
"""
_ATTRIBUTION = "user_id, identity_id, principal_id, deployment_id, api_key_id, distribution_id"
_FIGURES = (
    "invocations, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, cost"
)
ROWS = {
    "usage_records": f"""
INSERT INTO usage_records (invocation_id, organization_id, model, provider, prompt_tokens, completion_tokens,
    cached_tokens, reasoning_tokens, cost, status, is_estimated, user_id, api_key_id, occurred_at)
SELECT uuidv7(), {_SOMEBODY}, 'acme/model-' || mod(n, 10), 'acme', 1000, 230, 0, 0, 4321,
    CASE WHEN mod(n, 50) = 0 THEN 'failed' ELSE 'completed' END, false, {_SOMEBODY}, {_SOMEBODY}, {_MOMENT}
FROM generate_series(1, %(count)s) AS n
""",
    "ledger_entries": f"""
INSERT INTO ledger_entries (organization_id, version, kind, reference, amount, balance_after, occurred_at)
SELECT {_SOMEBODY}, n / 100 + 1, 'charge', uuidv7()::text, -4321, 1000000000 - n, {_MOMENT}
FROM generate_series(1, %(count)s) AS n
""",
    "audit_events": f"""
INSERT INTO audit_events (id, organization_id, actor_kind, actor_id, action, resource_kind, resource_id, details,
    request_id, credential_id, client_address, at)
SELECT uuidv7(), {_SOMEBODY}, 'User', {_SOMEBODY}, 'file.grant_revoked', 'file', uuidv7()::text,
    jsonb_build_object('grant_id', uuidv7()), gen_random_uuid()::text, {_SOMEBODY}, '192.0.2.17', {_MOMENT}
FROM generate_series(1, %(count)s) AS n
""",
    "usage_hours": f"INSERT INTO usage_hours (organization_id, hour, model, {_ATTRIBUTION}, {_FIGURES})"
    f"{_SUMS.format(step='hour')}",
    "usage_days": f"INSERT INTO usage_days (organization_id, day, model, {_ATTRIBUTION}, {_FIGURES})"
    f"{_SUMS.format(step='day')}",
    "storage_days": """
INSERT INTO storage_days (organization_id, day, stored_bytes, byte_microseconds, price, cost, remainder, charged_at)
SELECT uuidv7(), date '2026-01-01' + mod(n, 365), 98765432109, 98765432109::numeric * 86400000000, 25000, 2299,
    2e21, now()
FROM generate_series(1, %(count)s) AS n
""",
    "storage_parts": """
INSERT INTO storage_parts (organization_id, day, purpose, owner_kind, owner_id, distribution_id, stored_bytes,
    byte_microseconds)
SELECT uuidv7(), date '2026-01-01' + mod(n, 365), 'MessagingMedia', 'PrincipalIdentity', uuidv7(), uuidv7(),
    98765432109, 98765432109::numeric * 86400000000 FROM generate_series(1, %(count)s) AS n
""",
    "files": f"""
WITH new AS MATERIALIZED (
    SELECT uuidv7() AS id, uuidv7() AS version_id, n FROM generate_series(1, %(count)s) AS n
), stored AS (
    INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state, current_version_id,
        revision)
    SELECT id, {_SOMEBODY}, {_SOMEBODY}, 'AgentArtifact', 'DaemonIdentity', {_SOMEBODY}, 'Available', version_id, 1
    FROM new RETURNING id
), referred AS (
    INSERT INTO file_references (file_id, kind, reference_id) SELECT id, 'Task', uuidv7()::text FROM new
)
INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256)
SELECT version_id, id, 1, 'report of week ' || mod(n, 5000) || '.pdf', 'application/pdf', 4096, sha256(id::text::bytea)
FROM new
""",
}
SHOWN = (*ROWS, "file_versions", "file_words", "file_references")


def measure(url: str, count: int) -> Iterator[tuple[str, int, int]]:
    """Fill a migrated database. Return the bytes of a row of each table, and how many of them are in indexes."""
    connection = psycopg2.connect(url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMPORARY TABLE somebody AS SELECT array_agg(uuidv7()) AS ids FROM generate_series(1, 100)"
        )
        cursor.execute("INSERT INTO organizations (id, name) SELECT unnest(ids), 'Acme' FROM somebody")
        for statement in ROWS.values():
            cursor.execute(statement, {"count": count})
        cursor.execute("VACUUM ANALYZE")
        for table in SHOWN:
            cursor.execute(f"SELECT pg_total_relation_size('{table}'), pg_indexes_size('{table}')")
            ((size, in_indexes),) = cursor.fetchall()
            yield table, round(size / count), round(in_indexes / count)
    connection.close()


def main(count: int) -> None:
    """Measure in a Postgres of its own, and print the result."""
    with tempfile.TemporaryDirectory() as directory:
        server = EmbeddedPostgres(Path(directory) / "postgres", durable=False)
        server.start()
        try:
            for name, size, in_indexes in measure(server.migrations_url(make_template(server)), count):
                print(f"{name:16} {size:5} bytes a row, {in_indexes} of them in indexes")
        finally:
            server.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT)
