"""Every place that opens a transaction and may write is opened by a flow, or by a request that is repeated."""

from tests.proof.commits import ROOT, visited, watched
from tests.proof.flows import run
from tests.proof.places import list_places
from tests.proof.table import FLOWS, WRITES
from tests.proof.world import World

READ = frozenset(
    {
        *(
            "shared/a2a/behaviors/linked_files.py",
            "shared/a2a/tasks/following.py",
            "shared/service_metrics.py",
        ),
        *("shared/credits/reconciliation.py", "shared/files/auditing.py", "shared/files/storage_proof.py"),
        *("shared/database_limits.py", "shared/identity/rechecking.py"),
        *("shared/files/grants.py:require_unrevoked", "shared/files/idempotency.py:get_outcome"),
        *("shared/files/placement.py:wait_while_staged", "shared/files/replaces.py:_explain_loss"),
        *("shared/identity/authentication.py:Authenticator._attributed_caller",),
        *("shared/identity/token_exchange.py:introspect", "shared/media/fetching.py:_locate"),
        *("shared/media/pushing.py:push_content", "shared/models/heartbeats.py:LeaseReader._read"),
        *("web/a2a/messages.py:_shown", "web/a2a/streams.py:_Answer.wait", "web/door/streaming.py"),
    }
)
"""What only reads, and is read where something was lost, by those who wait, or by the clock."""
ELSEWHERE = {
    "shared/a2a/behaviors/model_calls.py:ModelCalls._give_up": "tests/shared/a2a/behaviors/test_deaths.py",
    "shared/a2a/door/waiting.py:_route_if_due": "tests/web/door/test_killed_doors.py",
    "shared/a2a/remote/": "tests/shared/a2a/remote/test_deaths.py",
    "shared/a2a/tasks/log.py:TaskLog._refuse": "tests/shared/a2a/behaviors/test_execution.py",
    "shared/a2a/tasks/log.py:TaskLog._take_up": "tests/shared/a2a/behaviors/test_execution.py",
    "shared/a2a/turns/leases.py:TurnLeases.look": "tests/shared/a2a/behaviors/test_both_doors.py",
    "shared/a2a/turns/leases.py:TurnLeases.renew": "tests/shared/a2a/behaviors/test_both_doors.py",
    "shared/a2a/turns/lost_turns.py": "tests/proof/test_lost_answers.py",
    "shared/credits/pruning.py": "tests/shared/credits/test_pruning.py",
    "shared/credits/rollups.py": "tests/shared/credits/test_interleavings.py",
    "shared/deliveries/ordering.py:release_stalled": "tests/shared/deliveries/test_ordered_deliveries.py",
    "shared/deliveries/sender.py:Sender._set_aside": "tests/shared/deliveries/test_sender.py",
    "shared/files/mending.py": "tests/shared/files/test_auditing.py",
    "shared/files/moving.py": "tests/shared/files/test_moving.py",
    "shared/files/scrubbing.py": "tests/shared/files/test_scrubbing.py",
    "shared/files/staging.py:StagedContent._doom": "tests/shared/files/test_background_work.py",
    "shared/files/store_identity.py": "tests/shared/files/test_store_identity.py",
    "shared/identity/bootstrap.py": "tests/shared/identity/test_bootstrap.py",
    "shared/identity/reencryption.py": "tests/shared/identity/test_reencryption.py",
    "shared/identity/workflow_exchange.py": "tests/web/identity/test_workflow_exchange.py",
    "shared/media/holding.py:resume_held": "tests/shared/media/test_held_imports.py",
    "shared/media/leases.py": "tests/shared/media/test_killed_workers.py",
    "shared/models/heartbeats.py:Heartbeats._renew": "tests/journeys/models/test_dead_workers.py",
    "web/console/pages/signing.py:come_back": "tests/web/console/test_provider_sign_in.py",
}
"""What is done by the clock, after a loss, by operators, or beside a server of its own; and the test of it."""


def test_every_place_that_opens_a_transaction_is_opened_by_a_flow(world: World) -> None:
    with watched() as journal:
        for flow in FLOWS:
            run(world, flow)
        for write in WRITES:
            write.prepare(world)()
    exempt = READ | ELSEWHERE.keys()
    left = {str(place) for place in list_places() - visited}
    assert {place for place in left if not any(map(place.startswith, exempt))} == set()
    # What is done by the clock may have been visited, or not.
    every = set(map(str, list_places()))
    assert {at for at in exempt if not any(place.startswith(at) for place in every)} == set(), "no such place"
    written = {commit.site for commit in journal.commits}
    assert {str(site) for site in written if any(map(str(site).startswith, READ))} == set(), "it writes"
    in_web = {site for site in written if site.path.startswith("web/")}
    assert in_web <= list_places(), "routes write in a transaction, and only read in autocommit"


def test_what_is_tested_elsewhere_has_its_test() -> None:
    assert {path for path in ELSEWHERE.values() if not (ROOT / path).exists()} == set()
