"""The runbook states the retention of every table that grows with use."""

import re
from pathlib import Path

from deploy.cli.commands.encryption import all_tables

ROOT = Path(__file__).parents[2]
SET_UP = {
    "api_keys",
    "behaviors",
    "blob_stores",
    "budgets",
    "client_credentials",
    "credit_balances",
    "deployment_endpoints",
    "deployment_repositories",
    "deployments",
    "distributions",
    "identities",
    "invitations",
    "key_models",
    "memberships",
    "network_accounts",
    "network_settings",
    "notification_endpoints",
    "organization_endpoints",
    "organizations",
    "pruned_usage",
    "role_bindings",
    "schedules",
    "storage_mark",
    "storage_prices",
    "usage_rollup",
    "users",
    "versions",
}
"""Tables that grow with the configuration, or have one row."""


def test_every_table_that_grows_has_a_rule_in_the_runbook() -> None:
    page = (ROOT / "deploy" / "README.md").read_text()
    section = page.partition('<a id="growth"></a>')[2].partition("\n## Back up")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted({table.name for table in all_tables()} - SET_UP)
