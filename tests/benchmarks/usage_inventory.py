"""Fill a database with usage as rows: many organizations, keys and settled calls."""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg2
import psycopg2.extras

from shared.identity.secrets import Prefix, Secret, issue
from shared.ids import new_id

DAYS = 30
BATCH = 1_000_000

# Evenly over the last thirty days, with models, users and organizations in turn.
_CALLS = """
CREATE TEMPORARY TABLE calls AS
SELECT uuidv7() AS id, n, payer.id AS organization_id, 'fake/' || (n %% %(models)s) AS model,
    users[1 + n / %(models)s %% array_length(users, 1)] AS user_id, 10 + n %% 500 AS prompt, 5 + n %% 300 AS completion,
    now() - interval '1 day' * %(days)s * (1 - n::float8 / %(count)s) AS at
FROM generate_series(%(first)s, %(last)s) AS n
JOIN unnest(%(organizations)s::uuid[]) WITH ORDINALITY AS payer (id, place)
    ON payer.place = 1 + n %% array_length(%(organizations)s::uuid[], 1)
CROSS JOIN (SELECT %(users)s::uuid[] AS users) AS all_users
"""
_RECORDS = """
INSERT INTO usage_records (invocation_id, organization_id, model, provider, prompt_tokens, completion_tokens,
    cached_tokens, reasoning_tokens, cost, status, is_estimated, user_id, occurred_at)
SELECT id, organization_id, model, 'fake', prompt, completion, 0, 0, prompt + 2 * completion, 'completed', false,
    user_id, at
FROM calls ORDER BY n
"""
_INVOCATIONS = """
INSERT INTO invocations (id, organization_id, state, hold, model, prompt_price, completion_price,
    estimated_prompt_tokens, user_id, created_at, lease_until, ended_at)
SELECT id, organization_id, 'settled', 1000, model, 1000000, 2000000, prompt, user_id, at, at, at FROM calls ORDER BY n
"""
_ENTRIES = """
INSERT INTO ledger_entries (organization_id, version, kind, reference, amount, balance_after, occurred_at)
SELECT c.organization_id, b.version + row_number() OVER (PARTITION BY c.organization_id ORDER BY n), 'charge',
    c.id::text, -(prompt + 2 * completion), 0, at
FROM calls c JOIN credit_balances b USING (organization_id) ORDER BY n
"""
_COUNT_ENTRIES = """
UPDATE credit_balances b SET version = b.version + counted.entries
FROM (SELECT organization_id, count(*) AS entries FROM calls GROUP BY 1) AS counted
WHERE counted.organization_id = b.organization_id
"""
_ORGANIZATIONS = "INSERT INTO organizations (id, name) VALUES %s"
_BALANCES = "INSERT INTO credit_balances (organization_id, posted) VALUES %s"
_USERS = "INSERT INTO users (id, email) VALUES %s"
_MEMBERSHIPS = "INSERT INTO memberships (organization_id, user_id, role) VALUES %s"
_KEYS = "INSERT INTO api_keys (id, user_id, organization_id, name, hash, last4) VALUES %s"
_POSTED = 10**15


def record_usage(
    url: str, count: int, *, organizations: Sequence[str], users: Sequence[str], models: int, with_money: bool
) -> None:
    """Add this many usage records. `with_money` also adds the invocations and entries of the same calls."""
    statements = [_RECORDS, *([_INVOCATIONS, _ENTRIES, _COUNT_ENTRIES] if with_money else [])]
    connection = _connect(url)
    with connection.cursor() as cursor:
        for first in range(1, count + 1, BATCH):
            values: Mapping[str, Any] = {
                "first": first,
                "last": min(first + BATCH - 1, count),
                "count": count,
                "days": DAYS,
                "models": models,
                "organizations": list(organizations),
                "users": list(users),
            }
            cursor.execute(_CALLS, values)
            for statement in statements:
                cursor.execute(statement)
            cursor.execute("DROP TABLE calls")
        cursor.execute("VACUUM ANALYZE")
    connection.close()


def add_key_holders(url: str, count: int, *, organizations: int) -> tuple[list[str], list[str], list[Secret]]:
    """Add organizations with credits, and this many members with a key in turn. Return their ids and the keys."""
    payers = [str(new_id()) for _ in range(organizations)]
    people = [str(new_id()) for _ in range(count)]
    keys = [issue(Prefix.API_KEY) for _ in range(count)]
    homes = [payers[number % organizations] for number in range(count)]
    connection = _connect(url)
    with connection.cursor() as cursor:
        for statement, rows in (
            (_ORGANIZATIONS, [(at, "bulk") for at in payers]),
            (_BALANCES, [(at, _POSTED) for at in payers]),
            (_USERS, [(at, f"{at}@example.org") for at in people]),
            (_MEMBERSHIPS, [(home, at, "Member") for home, at in zip(homes, people, strict=True)]),
            (
                _KEYS,
                [
                    (str(new_id()), at, home, "bulk", key.hash, key.last4)
                    for at, home, key in zip(people, homes, keys, strict=True)
                ],
            ),
        ):
            psycopg2.extras.execute_values(cursor, statement, rows, page_size=1000)
    connection.close()
    return payers, people, keys


def begin_rollups(url: str) -> None:
    """Make the rollups begin before everything that was added."""
    connection = _connect(url)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE usage_rollup SET rolled_up_to = now() - interval '1 day' * %s", (DAYS + 1,))
    connection.close()


def analyze(url: str) -> None:
    """Update the planner's statistics."""
    connection = _connect(url)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    connection.close()


def _connect(url: str) -> Any:
    connection = psycopg2.connect(url)
    connection.autocommit = True
    return connection
