"""Every place of the product that opens a transaction, read from its source. Routes that only read are left out."""

import ast
from collections.abc import Iterator
from functools import cache

from tests.proof.commits import ROOT, Site

PACKAGES = ("shared", "web", "workers")
OPENING = frozenset({"transaction", "autocommit"})
_READING = frozenset({"page", "pages", "download"})
"""The methods that declare routes that only read, besides GET."""
_WRITING = frozenset({"return_from_provider", "complete_installation"})
"""Routes that write at a GET, because a browser returns from a site where its user agreed."""
READ = frozenset(
    {
        *(
            "shared/a2a/behaviors/linked_files.py",
            "shared/a2a/tasks/responses.py",
            "shared/operations/service_metrics.py",
        ),
        *(
            "shared/credits/reconciliation.py",
            "shared/files/maintenance/store_audit.py",
            "shared/files/metering/storage_check.py",
        ),
        *("shared/db/role_limits.py", "shared/identity/authentication/revalidation.py"),
        *("shared/files/grants.py:require_unrevoked", "shared/files/idempotency.py:get_outcome"),
        *(
            "shared/files/lifecycle/placement.py:wait_while_staged",
            "shared/files/replaces.py:_explain_conflict",
        ),
        *("shared/identity/authentication/authenticator.py:Authenticator._attributed_caller",),
        *(
            "shared/identity/token_endpoint/token_exchange.py:introspect",
            "shared/media/importing/fetch_job.py:_locate",
        ),
        *(
            "shared/media/importing/pushed_content.py:push_content",
            "shared/models/heartbeats.py:LeaseReader._read",
        ),
        *(
            "web/a2a/messages.py:_current_response",
            "web/a2a/streams.py:_MessageStream.on_idle",
            "web/inbound/streaming.py",
        ),
    }
)
"""Places that only read: after a loss, while a client waits, or periodically."""
ELSEWHERE = {
    "shared/a2a/behaviors/model_calls.py:ModelCalls._release_hold": "tests/shared/a2a/behaviors/test_deaths.py",
    "shared/a2a/inbound/dispatcher.py:_route_if_due": "tests/web/inbound/test_process_deaths.py",
    "shared/a2a/remote/": "tests/shared/a2a/remote/test_deaths.py",
    "shared/a2a/agent_turns/task_log.py:TaskLog._refuse": "tests/shared/a2a/behaviors/test_execution.py",
    "shared/a2a/agent_turns/task_log.py:TaskLog._resubmit": "tests/shared/a2a/behaviors/test_execution.py",
    "shared/a2a/turn_state/leases.py:TurnLeases.check": "tests/shared/a2a/behaviors/test_entry_points.py",
    "shared/a2a/turn_state/leases.py:TurnLeases.renew": "tests/shared/a2a/behaviors/test_entry_points.py",
    "shared/a2a/agent_turns/lost_turns.py": "tests/proof/test_lost_responses.py",
    "shared/credits/usage/pruning.py": "tests/shared/credits/usage/test_pruning.py",
    "shared/credits/usage/rollups.py": "tests/shared/credits/test_interleavings.py",
    "shared/deliveries/ordering.py:release_stalled": "tests/shared/deliveries/test_ordered_deliveries.py",
    "shared/deliveries/sender.py:Sender._set_aside": "tests/shared/deliveries/test_sender.py",
    "shared/files/maintenance/store_repair.py": "tests/shared/files/maintenance/test_store_audit.py",
    "shared/files/maintenance/store_migration.py": "tests/shared/files/maintenance/test_store_migration.py",
    "shared/files/maintenance/scrubbing.py": "tests/shared/files/maintenance/test_scrubbing.py",
    "shared/files/staging.py:StagedContent._mark_for_deletion": "tests/shared/files/lifecycle/test_background_work.py",
    "shared/files/store_identity.py": "tests/shared/files/test_store_identity.py",
    "shared/identity/bootstrap.py": "tests/shared/identity/test_bootstrap.py",
    "shared/identity/credentials/reencryption.py": "tests/shared/identity/credentials/test_reencryption.py",
    "shared/identity/token_endpoint/workflow_exchange.py": "tests/web/identity/test_workflow_exchange.py",
    "shared/media/importing/paused_imports.py:resume_paused": "tests/shared/media/importing/test_paused_imports.py",
    "shared/media/importing/leases.py": "tests/shared/media/importing/test_killed_workers.py",
    "shared/models/heartbeats.py:Heartbeats._renew": "tests/journeys/models/test_dead_workers.py",
    "web/console/pages/sign_in.py:return_from_provider": "tests/web/console/test_provider_sign_in.py",
}
"""Places that run periodically, after a loss, for operators, or beside a server of their own; and the test of each."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def list_places() -> frozenset[Site]:
    """List the places. In `web`, autocommit is only for reading, which `test_lost_responses.py` checks."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return frozenset(
        site
        for path in files
        for site in _places_of(str(path.relative_to(ROOT)), ast.parse(path.read_text()), "")
        if site.path != "shared/db/database.py"
    )


def _places_of(path: str, node: ast.AST, function: str) -> Iterator[Site]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function | ast.ClassDef):
            is_reading = any(map(_is_reading, child.decorator_list)) and child.name not in _WRITING
            if not is_reading:
                yield from _places_of(path, child, f"{function}.{child.name}".lstrip("."))
            continue
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and not child.args:
            opens = child.func.attr
            if opens == "transaction" or (opens in OPENING and not path.startswith("web/")):
                yield Site(path, child.lineno, function)
        yield from _places_of(path, child, function)


def _is_reading(decorator: ast.expr) -> bool:
    if not (isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute)):
        return False
    first = decorator.args[0] if decorator.args else None
    is_get = isinstance(first, ast.Constant) and first.value == "GET"
    return is_get or decorator.func.attr in _READING
