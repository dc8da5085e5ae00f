"""Every scheduled job changes a due row through its real binding: a handler without effect fails here."""

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.endpoint_tables import deployment_endpoints, remote_turns
from shared.a2a.inbound.tables import distribution_messages
from shared.a2a.schedules.tables import schedules
from shared.a2a.tables import send_operations, task_turns, tasks
from shared.credits.storage_billing.storage_tables import storage_days, storage_mark
from shared.credits.tables import budget_alerts, credit_balances, invocations, usage_records, usage_rollup
from shared.db.database import Database
from shared.deliveries.sealed_addresses import seal_address
from shared.deliveries.tables import deliveries
from shared.encryption import Encryption
from shared.files.tables import blobs, files, operations, read_grants, resumable_uploads, versions
from shared.identity.console_tables import console_sessions
from shared.identity.tables import deployments, distributions, revoked_tokens
from shared.identity.tokens.key_rotation import ensure_keys
from shared.media.importing.import_queue import queue_imports
from shared.media.importing.imports import STANDARD
from shared.media.network_tables import network_settings
from shared.media.notifications.notification_tables import expiring_media
from shared.media.tables import media_imports
from shared.messaging.jobs import HANDLERS
from shared.observability.telemetry import LEDGER_DISCREPANCIES
from tests.shared.credits.calls import Calls
from tests.shared.media.conftest import attachment, make_mailbox
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import MediaSource, content
from tests.support.data.row_factory import plant
from tests.support.processes.bound_worker import BoundWorker, bound_worker
from workers.schedule import build_schedule

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=4000)
CONTENT = b"content"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A worker with every handler, and what rows are planted with."""

    worker: BoundWorker
    database: Database
    source: MediaSource
    blobs: Path

    def ask(self, query: str, **values: Any) -> Any:
        with self.database.autocommit() as session:
            return session.execute(text(query), values).scalar()

    def stage(self, version_id: UUID) -> Path:
        """Leave bytes in staging, as a front does; give where."""
        self.worker.context.store.check()
        path = self.blobs / "staging" / str(version_id)
        path.write_bytes(CONTENT)
        return path


Look = Callable[[], Any]
Due = Callable[[Bench, UUID], tuple[Look, Any, Any]]
"""Plants a row that is due; gives how to look at it, and what is seen before and after."""
DUE: dict[str, Due] = {}


def due(kind: str, also: str = "") -> Callable[[Due], Due]:
    """Name the job that is to change the row; `also` tells a second row of the same job from its first."""

    def remember(make: Due) -> Due:
        DUE[f"{kind} {also}".strip()] = make
        return make

    return remember


@due("files.place_staged")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    bench.stage(at)
    plant(bench.database, blobs, version_id=at, state="staged", byte_size=len(CONTENT))
    return lambda: bench.ask("SELECT state FROM blobs WHERE version_id = :id", id=at), "staged", "live"


@due("files.collect_doomed")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, blobs, version_id=at, state="doomed")
    return lambda: bench.ask("SELECT state FROM blobs WHERE version_id = :id", id=at), "doomed", None


@due("files.expire_due")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant_file(bench, at, retention_expires_at=LONG_AGO)
    return lambda: bench.ask("SELECT state FROM files WHERE id = :id", id=at), "Available", "Expired"


@due("files.sweep_staging")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    path = bench.stage(at)
    return path.exists, True, False


@due("files.scrub_content")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant_file(bench, at)
    plant(bench.database, versions, id=at, file_id=at, byte_size=len(CONTENT))
    plant(bench.database, blobs, version_id=at, state="live", byte_size=len(CONTENT), verified_at=LONG_AGO)
    return (
        lambda: bench.ask("SELECT damaged_at > :now FROM blobs WHERE version_id = :id", id=at, now=NOW),
        None,
        True,
    )


@due("files.purge_records")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, operations, operation_id=at, kind="upload", created_at=LONG_AGO)
    return lambda: bench.ask("SELECT count(*) FROM file_operations WHERE operation_id = :id", id=at), 1, 0


@due("files.purge_records", also="grants")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, read_grants, id=at, token_hash=at.bytes * 2, access_expires_at=LONG_AGO)
    return lambda: bench.ask("SELECT count(*) FROM read_grants WHERE id = :id", id=at), 1, 0


@due("files.purge_records", also="uploads")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, resumable_uploads, id=at, state="Expired", ended_at=LONG_AGO, expires_at=LONG_AGO)
    return lambda: bench.ask("SELECT count(*) FROM resumable_uploads WHERE id = :id", id=at), 1, 0


@due("files.collect_doomed", also="dead receptions")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, blobs, version_id=at, state="receiving", lease_until=LONG_AGO)
    return lambda: bench.ask("SELECT state FROM blobs WHERE version_id = :id", id=at), "receiving", None


@due("files.expire_uploads")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, resumable_uploads, id=at, state="Receiving", received_bytes=0, expires_at=LONG_AGO)
    state = "SELECT state FROM resumable_uploads WHERE id = :id"
    return lambda: bench.ask(state, id=at), "Receiving", "Expired"


@due("credits.prune_usage")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    bench.ask("UPDATE usage_rollup SET rolled_up_to = now() RETURNING 1")
    plant(bench.database, credit_balances, organization_id=at)
    record = {"invocation_id": at, "organization_id": at, "status": "completed", "occurred_at": LONG_AGO}
    plant(bench.database, usage_records, **record)
    return lambda: bench.ask("SELECT count(*) FROM usage_records WHERE invocation_id = :id", id=at), 1, 0


@due("files.accrue_storage")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, storage_days, organization_id=at, day=LONG_AGO.date(), price=1, byte_microseconds=0)
    charged = "SELECT charged_at IS NOT NULL FROM storage_days WHERE organization_id = :id"
    plant(bench.database, credit_balances, organization_id=at)
    return lambda: bench.ask(charged, id=at), False, True


@due("files.prove_storage")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    today = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
    bench.ask("DELETE FROM storage_mark RETURNING 1")
    plant(bench.database, storage_mark, id=1, measured_to=today)
    plant(bench.database, storage_days, organization_id=at, day=today.date(), stored_bytes=7)
    forget_discrepancies("storage_measured")
    return lambda: discrepancies("storage_measured"), 0, 1


@due("identity.rotate_due_keys")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    ensure_keys(bench.database, bench.worker.context.settings)
    bench.ask("UPDATE signing_keys SET created_at = :at, activated_at = :at RETURNING 1", at=LONG_AGO)
    return lambda: bench.ask("SELECT count(*) FROM signing_keys WHERE state = 'previous'"), 0, 2


@due("identity.sweep_revoked_tokens")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, revoked_tokens, jti=str(at), expires_at=LONG_AGO)
    return lambda: bench.ask("SELECT count(*) FROM revoked_tokens WHERE jti = :id", id=str(at)), 1, 0


@due("identity.sweep_console_sessions")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, console_sessions, id=at, hash=at.bytes, expires_at=LONG_AGO)
    return lambda: bench.ask("SELECT count(*) FROM console_sessions WHERE id = :id", id=at), 1, 0


@due("credits.release_overdue_holds")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    call = funded(bench).hold(1)
    bench.ask("UPDATE invocations SET lease_until = :at WHERE id = :id RETURNING 1", id=call, at=LONG_AGO)
    return lambda: state_of(bench, call), "held", "expired"


@due("credits.release_overdue_holds", also="silent calls")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    call, _ = funded(bench).dispatched(1)
    bench.ask("UPDATE invocations SET lease_until = :at WHERE id = :id RETURNING 1", id=call, at=LONG_AGO)
    return lambda: state_of(bench, call), "dispatched", "unresolved"


@due("credits.settle_unresolved")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    call, _ = funded(bench).dispatched(1)
    unresolved = "UPDATE invocations SET state = 'unresolved', lease_until = :at WHERE id = :id RETURNING 1"
    bench.ask(unresolved, id=call, at=LONG_AGO)
    return lambda: state_of(bench, call), "unresolved", "settled"


@due("credits.roll_up_usage")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    bench.ask("DELETE FROM usage_rollup RETURNING 1")
    plant(bench.database, usage_rollup, id=1, rolled_up_to=NOW - timedelta(hours=3))
    return (
        lambda: bench.ask("SELECT rolled_up_to > :at FROM usage_rollup", at=NOW - timedelta(hours=1)),
        False,
        True,
    )


@due("credits.prove_ledger")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, credit_balances, organization_id=at, posted=5)
    forget_discrepancies("posted")
    return lambda: discrepancies("posted") > 0, False, True


@due("credits.purge_invocations")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, invocations, id=at, state="voided", created_at=LONG_AGO, ended_at=LONG_AGO)
    return lambda: bench.ask("SELECT count(*) FROM invocations WHERE id = :id", id=at), 1, 0


@due("credits.send_budget_alerts")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, budget_alerts, budget_id=at)
    return lambda: bench.ask("SELECT count(*) FROM budget_alerts WHERE budget_id = :id", id=at), 1, 0


@due("deliveries.send")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    settings = bench.worker.context.settings
    address = seal_address(Encryption(settings), url=bench.source.serve("/hook", content(b"")), headers={})
    plant(bench.database, deliveries, id=at, body=b"{}", address_encrypted=address, due_at=LONG_AGO)
    return lambda: bench.ask("SELECT attempts FROM deliveries WHERE id = :id", id=at), 0, 1


@due("deliveries.purge")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, deliveries, id=at, state="Delivered", ended_at=LONG_AGO, due_at=LONG_AGO)
    return lambda: bench.ask("SELECT count(*) FROM deliveries WHERE id = :id", id=at), 1, 0


@due("deliveries.purge", also="dead")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, deliveries, id=at, state="Dead", body=b"x", ended_at=LONG_AGO, due_at=LONG_AGO)
    return lambda: bench.ask("SELECT count(*) FROM deliveries WHERE id = :id", id=at), 1, 0


@due("media.fetch_due")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    mailbox = make_mailbox(bench.database)
    with bench.database.transaction() as session:
        (queued,) = queue_imports(
            session,
            bench.worker.context.settings,
            distribution_id=mailbox.id,
            network=STANDARD,
            attachments=[attachment(bench.source.serve("/image", content(PNG.content)))],
        )
    return (
        lambda: bench.ask("SELECT state FROM media_imports WHERE id = :id", id=queued.id),
        "Queued",
        "Stored",
    )


@due("media.resume_held")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    held = {"state": "Held", "code": "organization_suspended", "is_ready": False}
    plant(bench.database, media_imports, id=at, due_at=LONG_AGO, **held)
    return lambda: bench.ask("SELECT state FROM media_imports WHERE id = :id", id=at), "Held", "Queued"


@due("media.purge_imports")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    ended = {"state": "Failed", "code": "x", "ended_at": LONG_AGO, "forget_at": LONG_AGO}
    plant(bench.database, media_imports, id=at, due_at=LONG_AGO, **ended)
    return lambda: bench.ask("SELECT count(*) FROM media_imports WHERE id = :id", id=at), 1, 0


@due("media.notice_expired")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, expiring_media, file_id=at, expires_at=LONG_AGO)
    return lambda: bench.ask("SELECT count(*) FROM expiring_media WHERE file_id = :id", id=at), 1, 0


@due("media.forget_replaced_secrets")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    replaced = {"previous_webhook_secret_encrypted": b"x", "previous_webhook_secret_expires_at": LONG_AGO}
    plant(bench.database, distributions, id=at, networks=[], **replaced)
    kept = "SELECT previous_webhook_secret_encrypted IS NOT NULL FROM distributions WHERE id = :id"
    return lambda: bench.ask(kept, id=at), True, False


@due("media.forget_replaced_secrets", also="of networks")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    replaced = {"previous_encrypted": b"x", "previous_expires_at": LONG_AGO}
    plant(bench.database, network_settings, distribution_id=at, network="slack", name="x", **replaced)
    kept = "SELECT previous_encrypted IS NOT NULL FROM network_settings WHERE distribution_id = :id"
    return lambda: bench.ask(kept, id=at), True, False


@due("agents.sweep_turns")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, task_turns, id=at, state="queued", is_next=False, active_extensions=[])
    return lambda: bench.ask("SELECT is_next FROM task_turns WHERE id = :id", id=at), False, True


@due("agents.cancel_remote_tasks")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    done = {"state": "done", "outcome": "answered", "active_extensions": []}
    plant(bench.database, tasks, id=at, state="TASK_STATE_COMPLETED", status_at=NOW)
    plant(bench.database, task_turns, id=at, task_id=at, **done)
    plant(bench.database, remote_turns, turn_id=at, task_id=at)
    return lambda: bench.ask("SELECT is_open FROM remote_turns WHERE turn_id = :id", id=at), True, False


@due("agents.read_cards")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, deployment_endpoints, deployment_id=at, url=bench.source.url)
    is_checked = "SELECT checked_at IS NOT NULL FROM deployment_endpoints WHERE deployment_id = :id"
    return lambda: bench.ask(is_checked, id=at), False, True


@due("agents.purge_tasks")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, tasks, id=at, state="TASK_STATE_COMPLETED", status_at=LONG_AGO)
    return lambda: bench.ask("SELECT count(*) FROM tasks WHERE id = :id", id=at), 1, 0


@due("agents.purge_tasks", also="keys")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, send_operations, turn_id=at, created_at=LONG_AGO)
    return lambda: bench.ask("SELECT count(*) FROM send_operations WHERE turn_id = :id", id=at), 1, 0


@due("door.route_messages")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    mailbox = make_mailbox(bench.database)
    # The deployment's agent has no behavior: the message is refused.
    plant(
        bench.database,
        distribution_messages,
        id=at,
        distribution_id=mailbox.id,
        organization_id=mailbox.organization_id,
        message_id=str(at),
        request={"text": "hello", "channel": "standard"},
        imports=[],
        state="Waiting",
        due_at=LONG_AGO,
    )
    return (
        lambda: bench.ask("SELECT state FROM distribution_messages WHERE id = :id", id=at),
        "Waiting",
        "Refused",
    )


@due("door.purge_messages")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    long_ago = {"ended_at": LONG_AGO, "forget_at": LONG_AGO}
    ended = {"state": "Refused", "code": "gone", **long_ago}
    plant(bench.database, distribution_messages, id=at, imports=[], **ended)
    return lambda: bench.ask("SELECT count(*) FROM distribution_messages WHERE id = :id", id=at), 1, 0


@due("schedules.run_due")
def _(bench: Bench, at: UUID) -> tuple[Look, Any, Any]:
    plant(bench.database, deployments, id=at, kind="Remote", disabled_at=LONG_AGO)
    how = {"cron": "0 0 * * *", "time_zone": "UTC", "missed": "run_once", "catch_up_limit": 1}
    plant(bench.database, schedules, id=at, deployment_id=at, next_at=NOW - timedelta(days=1), **how)
    return lambda: bench.ask("SELECT next_at > now() FROM schedules WHERE id = :id", id=at), False, True


def plant_file(bench: Bench, at: UUID, **values: Any) -> None:
    owner = {"owner_kind": "PrincipalIdentity", "purpose": "MessagingMedia"}
    plant(bench.database, files, id=at, state="Available", **owner, **values)


def funded(bench: Bench) -> Calls:
    organization = IdentityFactory(bench.database, make_settings()).organization()
    calls = Calls(bench.database, organization.id)
    calls.top_up(10)
    return calls


def state_of(bench: Bench, invocation_id: UUID) -> Any:
    return bench.ask("SELECT state FROM invocations WHERE id = :id", id=invocation_id)


def forget_discrepancies(kind: str) -> None:
    """Reset the gauge, which keeps the results of earlier tests in this process."""
    LEDGER_DISCREPANCIES.labels(kind).set(0)


def discrepancies(kind: str) -> float:
    return float(LEDGER_DISCREPANCIES.labels(kind)._value.get())


@pytest.fixture(scope="module")
def bench(
    database: Database,
    database_url: str,
    valkey_server: EmbeddedValkey,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("due") / "blobs"
    settings = make_settings(
        database_url=database_url,
        redis_url=valkey_server.url,
        blob_store=directory.as_uri(),
        egress_allow_private=True,
        egress_allow_http=True,
        usage_record_days=35,
    )
    with MediaSource() as source, bound_worker(settings) as worker:
        yield Bench(worker=worker, database=database, source=source, blobs=directory)


def test_a_row_that_is_due_stands_here_for_every_scheduled_job() -> None:
    assert {kind_of(name) for name in DUE} == set(build_schedule())


def test_a_job_that_joins_several_sweeps_has_a_row_for_each() -> None:
    """Without one, a sweep missing from the job would go unnoticed."""
    joined = {
        kind: sweeps for kind in build_schedule() if (sweeps := sweeps_joined_by(HANDLERS[kind].run)) > 1
    }
    assert {"credits.release_overdue_holds", "files.purge_records"} <= joined.keys()
    rows = Counter(map(kind_of, DUE))
    assert {kind: rows[kind] for kind in joined} == joined


@pytest.mark.parametrize("name", DUE)
def test_a_scheduled_job_changes_what_is_due(bench: Bench, name: str) -> None:
    look, before, after = DUE[name](bench, uuid4())
    assert look() == before
    bench.worker.run(kind_of(name))
    assert look() == after != before


def test_content_is_not_read_again_where_that_is_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = bench.worker.context.settings.model_copy(update={"scrub_interval_days": 0})
    monkeypatch.setattr(bench.worker.context, "settings", settings)
    look, before, after = DUE["files.scrub_content"](bench, uuid4())
    bench.worker.run("files.scrub_content")
    assert look() == before
    monkeypatch.undo()
    bench.worker.run("files.scrub_content")
    assert look() == after


def kind_of(name: str) -> str:
    """The job that a row of the table is due for."""
    return name.partition(" ")[0]


def sweeps_joined_by(run: Callable[..., int]) -> int:
    """Count the sweeps whose results a handler adds up."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(run)))
    sums = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)]
    return len(sums) + 1
