"""Every list uses an index: a page costs as much as its own rows, however much the owner has.

The lists come from the OpenAPI document. Each is requested with every value of every filter by all kinds of callers.
Query plans show which rows were read, and each filter must change the page with some value. A new list fails here until
`large_owner.py` fills its table, a new filter until its schema has values or examples.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.credits.usage import usage_records
from shared.files import listing, searching
from shared.pagination import MAX_LIMIT
from tests.support.agents.agent_worker import answering_turns
from tests.support.data import large_owner
from tests.support.data.query_plans import Statement, recorded_statements, rows_read
from tests.support.processes.collected_cases import found
from tests.support.web.browser import begin_session
from tests.support.web.web_process import Front
from tests.web.test_cross_organization import DOCUMENT, Tenant, bearer, make_resources, make_tenant
from web.console import queries as console_queries
from web.console.pages import activity, files, ledger, tasks
from web.console.routes import PAGES

PAGE = 5
QUERIES = ("SELECT", "WITH")
LEAST_ROWS, ROWS_PER_ITEM = 250, 3
_PAGE_SIZES, _CURSORS = {"limit", "pageSize"}, {"cursor", "pageToken"}

WHOLE = {
    "list_references": "a file's references",
    "list_models": "the operator's catalog, from memory",
    "list_signing_keys": "a handful",
}
"""Lists without pages: they may read every row that they return."""

FEW = {"list_credit_statements": "one a month"}
"""Lists with pages that rarely fill one."""

KEPT = {"list_models": "the usage of all models is read periodically and cached for all callers"}
"""Lists of values that the process caches; reading them does not depend on the page."""

COUNTED = {"list_tasks", "list_tasks_of_agent"}
"""The protocol requires the total number of tasks on every page."""

UNFELT = {
    "list_files": {"createdTo"},
    "list_models": {"after_id", "before_id"},
    "list_usage_records": {"model", "to"},
    "list_organization_tasks": {"deploymentId"},
    "list_tasks": {"includeArtifacts"},
    "list_tasks_of_agent": {"includeArtifacts"},
}
"""Filters whose values here match all rows of this owner, by list."""

NO_LISTS = {
    "read_key_set",
    "read_credits",
    "get_credit_statement",
    "read_own_key",
    "read_key_models",
    "read_usage",
    "read_storage_usage",
    "read_organization_credits",
    "read_organization_storage",
    "read_network_settings",
    "read_behavior",
    "read_agent_card",
    "read_agent_card_of_agent",
    "read_extended_agent_card",
    "read_extended_agent_card_of_agent",
    "read_task",
    "read_task_of_agent",
}
"""Single resources, and reports over a window, whose responses also contain arrays."""


@dataclass(frozen=True, kw_only=True)
class Large:
    """An owner of many resources, and all kinds of callers."""

    front: Front
    resources: Mapping[str, str]
    credentials: Mapping[str, Mapping[str, str]]
    plans: dict[str, tuple[int, str]] = field(default_factory=dict)

    def rows_read(self, statement: Statement) -> tuple[int, str]:
        """Return the number of rows that a statement reads, and its plan; cached for repeated statements."""
        key = f"{statement.text} {statement.parameters}"
        if key not in self.plans:
            self.plans[key] = rows_read(self.front.services.database, statement)
        return self.plans[key]

    def get(self, template: str, by: str, query: Mapping[str, str]) -> Any:
        """Request a page. Return None if the caller may not read it."""
        path = re.sub(r"\{(\w+)\}", lambda match: self.resources[match[1]], template)
        answer = self.front.client.get(path, headers=self.credentials[by], query_string=query)
        return answer.get_json() if answer.status_code == 200 else None


def described() -> Iterator[tuple[str, str, Any]]:
    """Yield each GET by name, with its path and description."""
    for path, methods in DOCUMENT["paths"].items():
        if "get" in methods:
            yield methods["get"]["operationId"], path, methods["get"]


def holds_objects(schema: Mapping[str, Any]) -> bool:
    """Return whether a response contains an array of objects."""
    return any(
        member.get("type") == "array" and "$ref" in member.get("items", {})
        for member in resolve(schema).get("properties", {}).values()
    )


def resolve(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


LISTS = {
    name: (path, operation)
    for name, path, operation in described()
    if name.startswith("list_") and "application/json" in operation["responses"]["200"]["content"]
}


@pytest.fixture(scope="module")
def large(front: Front) -> Iterator[Large]:
    acme = make_tenant(front, "Acme")
    with answering_turns(front.services):
        resources = make_resources(front, acme)
    front.services.agents.watch.close()
    with front.services.database.transaction() as session:
        large_owner.fill(session.connection, resources, acme.organization_id)
        large_owner.analyze(session.connection)
    with pytest.MonkeyPatch.context() as patch:
        # The planner reads two pages of the newest rows from the table; a large organization makes it use the index.
        for module in (listing, searching):
            patch.setattr(module, "SCANNED_FILES", 2 * PAGE)
        patch.setattr(usage_records, "RECENT_RECORDS", 2 * PAGE)
        yield Large(front=front, resources=resources, credentials=everybody(front, acme))


def everybody(front: Front, acme: Tenant) -> Mapping[str, Mapping[str, str]]:
    return {**acme.credentials, "operator": bearer(front.identity.operator().authorization)}


def test_every_response_with_an_array_is_a_list_or_a_known_exception() -> None:
    found = {
        name
        for name, _, operation in described()
        for content in operation["responses"].get("200", {}).get("content", {}).values()
        if holds_objects(content.get("schema", {}))
    }
    assert found - set(LISTS) <= NO_LISTS


@pytest.mark.parametrize("name", LISTS)
def test_page_reads_only_its_own_rows(large: Large, name: str) -> None:
    template, operation = LISTS[name]
    # An agent's second URL responds in the same way, so combinations are only tested at the first.
    is_again = name.removesuffix("_agent_item") in LISTS.keys() - {name}
    seen: dict[frozenset[str], list[dict[str, Any]]] = {}
    served: set[str] = set()  # a caller refused with each single filter is refused with two of them
    for query in found(queries(operation, large.resources, is_whole=name in WHOLE, in_pairs=not is_again)):
        is_pair = len(query.keys() - _PAGE_SIZES) > 1
        pages = {
            by: look(large, name, template, by, query) for by in (served if is_pair else large.credentials)
        }
        served |= {by for by, page in pages.items() if page is not None}
        assert any(page is not None for page in pages.values()), (
            f"{query} was refused to all: its schema needs an example"
        )
        is_first = not query or query.keys() <= _PAGE_SIZES
        if is_first and name not in WHOLE.keys() | FEW.keys():
            has_next = any(page is not None and next_cursor(page) for page in pages.values())
            assert has_next, "there is no second page: fill the table in large_owner.py"
        seen.setdefault(frozenset(query.keys() - _PAGE_SIZES), []).append(pages)
    (plain,) = seen[frozenset()]
    singly = {next(iter(filters)): asked for filters, asked in seen.items() if len(filters) == 1}
    idle = {chosen for chosen, asked in singly.items() if all(pages == plain for pages in asked)}
    assert idle <= UNFELT.get(name, set()), "filters that leave nothing out, whatever their value"


def look(large: Large, name: str, template: str, by: str, query: Mapping[str, str]) -> Any:
    """Request a page. Fail if a statement read many more rows than were returned. Return None if refused."""
    with recorded_statements(large.front.services.database, beginning=QUERIES) as statements:
        page = large.get(template, by, query)
    if page is None:
        return None
    items = max(len(member) for member in page.values() if isinstance(member, list))
    for statement in statements:
        if name in KEPT and "usage_hours" in statement.text:
            continue
        if name in COUNTED and statement.text.startswith("SELECT count(*)"):
            continue
        read, plan = large.rows_read(statement)
        assert read <= LEAST_ROWS + ROWS_PER_ITEM * items, f"{by}, {query}: {read} rows for {items}\n{plan}"
    return page


def queries(
    operation: Any, resources: Mapping[str, str], *, is_whole: bool, in_pairs: bool
) -> Iterator[dict[str, str]]:
    """Yield every value of every filter alone, and in pairs with every value of another one."""
    parameters = {
        parameter["name"]: resolve(parameter["schema"])
        for parameter in operation["parameters"]
        if parameter.get("in") == "query"
    }
    size = {name: str(PAGE) for name in _PAGE_SIZES & set(parameters)}
    assert size or is_whole, "a list has pages"
    filters = {name: schema for name, schema in parameters.items() if name not in _PAGE_SIZES | _CURSORS}
    values = [
        [(name, value) for value in values_of(schema, resources.get(name))]
        for name, schema in filters.items()
    ]
    yield size
    for one in itertools.chain.from_iterable(values):
        yield size | dict([one])
    for some, others in itertools.combinations(values if in_pairs else (), 2):
        for pair in itertools.product(some, others):
            yield size | dict(pair)


def values_of(schema: Mapping[str, Any], resource: str | None) -> list[str]:
    """Return values for a parameter, including one that matches almost nothing, or the resource that it names."""
    if resource is not None:
        return [resource]
    for choice in schema.get("anyOf", ()):
        if choice.get("type") != "null":
            return values_of(resolve(choice), None)
    if "enum" in schema:
        return [value for value in schema["enum"] if value]
    if schema.get("format") == "uuid":
        return [str(uuid4())]
    if schema.get("format") == "date-time":
        return ["2100-01-01T00:00:00Z"]
    if schema.get("type") == "integer":  # a lower bound of 0 matches all rows, the largest nearly none
        return [str(schema[bound]) for bound in ("minimum", "maximum") if bound in schema] or ["0"]
    return [str(example) for example in schema.get("examples", ["nothing-has-this"])]


def next_cursor(page: Mapping[str, Any]) -> str | None:
    return page.get("nextCursor") or page.get("nextPageToken") or page.get("next_cursor") or None


CONSOLE = sorted(
    route.path
    for routes in PAGES
    for route in routes.declared
    if route.method == "GET" and not route.path.endswith((".csv", "/operations"))
)
CONSOLE_STATEMENTS = 12
_REPORTS = ("usage_rollup", "storage_mark", "file_references", "WITH bounds AS")
"""Statements that may read more rows than a page shows.

Sums over a window cost as much as its hours and days (`test_usage_query_plans.py`). A file's references and a month's
statement are read completely.
"""


@pytest.fixture(scope="module")
def cookie(large: Large) -> str:
    """The session cookie of the owner, with the large organization selected."""
    owner_id, organization_id = (UUID(large.resources[name]) for name in ("userId", "organizationId"))
    return begin_session(large.front, owner_id, organization_id)


@pytest.mark.parametrize("path", CONSOLE)
def test_console_page_costs_few_queries_and_reads_only_its_rows(
    large: Large, cookie: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (console_queries, activity, files, ledger, tasks):
        monkeypatch.setattr(
            module, "ROWS", PAGE
        )  # with fifty of a few thousand rows, a full scan would be cheaper
    address = re.sub(r"<\w+:(\w+)>", lambda match: large.resources[_camel(match[1])], path)
    client = large.front.app.test_client(use_cookies=False)
    with recorded_statements(large.front.services.database, beginning=QUERIES) as statements:
        answer = client.get(address, headers={"Cookie": f"__Host-qm={cookie}"})
    assert answer.status_code == 200 or "/content" in path, answer.text[:1000]
    assert len(statements) <= CONSOLE_STATEMENTS, [statement.text for statement in statements]
    for statement in statements:
        if any(name in statement.text for name in _REPORTS):
            continue
        read, plan = large.rows_read(statement)
        assert read <= LEAST_ROWS + ROWS_PER_ITEM * MAX_LIMIT, f"{read} rows\n{plan}"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
