"""Each cache and each unique key that callers choose is separated by caller, principal, deployment and organization.

For each of the four, a row names the test that fails if one party receives another's entry, or gives the reason why
that cannot happen. Add a row for each new cache, and for each new unique key with a part that callers choose.
"""

import ast
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import sqlalchemy as sa

import shared
from shared.db.schema import metadata
from tests.support.processes.named_tests import is_test

ROOT = Path(__file__).parents[2]
CHOSEN = {"operation_id", "key", "reference", "message_id", "attachment_id"}
"""Columns whose values callers choose, so that a repeated request is recognized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """A test or a reason for each of the four parties."""

    caller: str
    principal: str
    deployment: str
    organization: str


REPLAYS = "tests/web/files/test_operation_replays.py::"
OTHERS = f"{REPLAYS}test_operation_id_of_another_caller_reveals_nothing"
PIECES = "tests/web/files/test_resumable_uploads.py::test_an_operation_begun_by_others_is_another"
SENT = "tests/web/a2a/test_messages.py::test_idempotency_key_belongs_to_caller_principal_and_agent"
INBOUND = "tests/web/inbound/test_messages.py::test_message_id_is_unique_within_its_distribution"
ENTERED = (
    "tests/shared/credits/test_calls.py::test_ids_and_references_of_another_organization_are_independent"
)
OF_DISTRIBUTION = (
    "a distribution has one receiver, one deployment and one organization, and is part of the key"
)
OF_OPERATORS = "operators and payment systems alone make entries, for an organization"

KEYS = {
    "file_operations": Whose(
        caller=OTHERS,
        principal=f"{REPLAYS}test_an_operation_id_belongs_to_one_owner_of_one_executor",
        deployment=OTHERS,
        organization=OTHERS,
    ),
    "resumable_uploads": Whose(caller=PIECES, principal=PIECES, deployment=PIECES, organization=PIECES),
    "send_operations": Whose(caller=SENT, principal=SENT, deployment=SENT, organization=SENT),
    "distribution_messages": Whose(
        caller=INBOUND, principal=OF_DISTRIBUTION, deployment=OF_DISTRIBUTION, organization=INBOUND
    ),
    "media_imports": Whose(
        caller="tests/shared/media/importing/test_imports.py::test_the_same_ids_on_another_network_or_distribution_are_another_attachment",
        principal=OF_DISTRIBUTION,
        deployment=OF_DISTRIBUTION,
        organization="tests/shared/media/importing/test_imports.py::test_the_same_ids_on_another_network_or_distribution_are_another_attachment",
    ),
    "ledger_entries": Whose(
        caller=OF_OPERATORS, principal=OF_OPERATORS, deployment=OF_OPERATORS, organization=ENTERED
    ),
}
"""The unique keys, by table."""

CACHED = "tests/shared/identity/authentication/test_caching.py::"
REMEMBERED = f"{CACHED}test_cached_attribution_does_not_serve_another_credential"
KNOWN = f"{CACHED}test_a_known_call_asks_the_database_nothing"
BY_DIGEST = "the key is the digest of the whole secret, which is one caller's"
PUBLIC = "what is kept is the same for everybody who asks"
CACHES = {
    "shared/identity/authentication/authenticator.py _access_claims": Whose(
        caller=BY_DIGEST, principal=BY_DIGEST, deployment=BY_DIGEST, organization=BY_DIGEST
    ),
    "shared/identity/authentication/authenticator.py _attribution_claims": Whose(
        caller=REMEMBERED, principal=BY_DIGEST, deployment=REMEMBERED, organization=REMEMBERED
    ),
    "shared/identity/authentication/authenticator.py _credentials": Whose(
        caller=BY_DIGEST, principal=BY_DIGEST, deployment=BY_DIGEST, organization=BY_DIGEST
    ),
    "shared/identity/authentication/authenticator.py _callers": Whose(
        caller=REMEMBERED, principal=KNOWN, deployment=REMEMBERED, organization=REMEMBERED
    ),
    "shared/files/blobs/recent_checks.py _sound": Whose(
        caller=PUBLIC, principal=PUBLIC, deployment=PUBLIC, organization=PUBLIC
    ),
    "web/dependencies/agent_directory.py _known": Whose(
        caller=PUBLIC,
        principal=PUBLIC,
        deployment=SENT,
        organization="tests/web/test_cross_organization.py::test_resource_is_inaccessible_to_other_organizations",
    ),
    "web/media/distribution_admission.py _organizations": Whose(
        caller=PUBLIC,
        principal=OF_DISTRIBUTION,
        deployment=OF_DISTRIBUTION,
        organization="tests/web/test_cross_organization.py::"
        "test_push_signed_by_another_distribution_is_refused",
    ),
}
"""The caches, by module and cache name."""


def unique_keys() -> Iterator[tuple[str, set[str]]]:
    """Return every unique key of the tables, by table name."""
    for module in walk_packages(shared.__path__, "shared."):
        if module.name.endswith("tables"):
            import_module(module.name)
    for table in metadata.tables.values():
        for constraint in table.constraints:
            if isinstance(constraint, sa.UniqueConstraint | sa.PrimaryKeyConstraint):
                yield table.name, {column.name for column in constraint.columns}
        for index in table.indexes:
            if index.unique:
                yield table.name, {str(getattr(part, "name", part)) for part in index.expressions}


def caches() -> Iterator[str]:
    """Return every cache that the product creates, by module and cache name."""
    for package in ("shared", "web", "workers", "deploy"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Assign | ast.AnnAssign) and _is_cache(node.value):
                    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                    name = target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)
                    yield f"{path.relative_to(ROOT)} {name}"


def _is_cache(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).startswith("ExpiringCache")


def test_each_key_that_callers_choose_has_its_row() -> None:
    chosen = {table for table, columns in unique_keys() if columns & CHOSEN}
    assert chosen == KEYS.keys()


def test_each_cache_has_its_row() -> None:
    assert set(caches()) == CACHES.keys()


def test_each_cell_is_an_existing_test_or_a_reason() -> None:
    cells = [(name, cell) for name, row in {**KEYS, **CACHES}.items() for cell in astuple(row)]
    assert [(name, cell) for name, cell in cells if not cell] == []
    assert [(name, cell) for name, cell in cells if cell.startswith("tests/") and not is_test(cell)] == []
    assert {name for name, cell in cells if cell.startswith("tests/")} >= KEYS.keys()
