"""An organization that owes for storage beyond its grace stores nothing more, and loses nothing.

Specified in docs/specification/credits.md#storage.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.shared.credits.calls import Calls
from tests.support.files.file_requests import Asker, leaving_nothing, refuse, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import make_cast

OWES = (
    "UPDATE credit_balances SET posted = -1, storage_overdue_since = now() - interval '15 days',"
    " storage_refused_from = now() - interval '1 day' WHERE organization_id = :id"
)


@dataclass(frozen=True, kw_only=True)
class Debtor:
    """An organization that owes, its agent and its owner, and an earlier file of each kind of retention."""

    organization_id: UUID
    calls: Calls
    agent: Asker
    owner: Asker
    file: Any
    operation_id: UUID


@pytest.fixture
def debtor(front: Front) -> Debtor:
    cast = make_cast(front)
    calls = Calls(front.services.database, cast.acme)
    operation_id = uuid4()
    file = succeed(
        cast.agent.upload(
            b"from before", retentionExpiresAt="2100-01-01T00:00:00Z", operationId=operation_id
        ),
        201,
    )
    calls.top_up(1)
    calls.run(OWES, id=cast.acme)
    return Debtor(
        organization_id=cast.acme,
        calls=calls,
        agent=cast.agent,
        owner=cast.owner,
        file=file,
        operation_id=operation_id,
    )


def test_an_upload_is_refused_and_leaves_nothing(front: Front, debtor: Debtor) -> None:
    with leaving_nothing(front):
        refuse(debtor.agent.upload(b"more"), 402, "insufficient_credits")


def test_a_replace_is_refused_and_leaves_nothing(front: Front, debtor: Debtor) -> None:
    with leaving_nothing(front):
        refuse(debtor.agent.replace(debtor.file), 402, "insufficient_credits")


def test_debtor_can_read_share_and_renew_stored_files(debtor: Debtor) -> None:
    file = debtor.file
    assert debtor.agent.content(file).data == b"from before"
    link = succeed(debtor.agent.grant(file), 201)["url"]
    assert debtor.agent.follow(link).data == b"from before"
    assert succeed(debtor.agent.renew(file, None))["metadata"]["retentionExpiresAt"] is None
    succeed(debtor.agent.metadata(file))
    succeed(debtor.owner.delete(file))


def test_retry_by_a_debtor_gets_the_first_result(debtor: Debtor) -> None:
    again = debtor.agent.upload(
        b"from before", retentionExpiresAt="2100-01-01T00:00:00Z", operationId=debtor.operation_id
    )
    assert succeed(again)["replayed"] is True


def test_errors_of_the_request_and_of_the_file_come_first(debtor: Debtor) -> None:
    refuse(debtor.agent.upload(b"x", retentionExpiresAt="2001-01-01T00:00:00Z"), 422, "validation_failed")
    refuse(debtor.agent.replace(debtor.file, expectedRevision=7), 412, "version_mismatch")
    succeed(debtor.owner.delete(debtor.file))
    refuse(debtor.agent.replace(debtor.file), 410, "file_deleted")


def test_a_top_up_ends_the_refusal_at_once(debtor: Debtor) -> None:
    debtor.calls.top_up(1)
    succeed(debtor.agent.upload(b"more"), 201)
    succeed(debtor.agent.replace(debtor.file))


def test_within_the_grace_everything_works(debtor: Debtor) -> None:
    later = "UPDATE credit_balances SET storage_refused_from = now() + interval '1 hour' WHERE organization_id = :id"
    debtor.calls.run(later, id=debtor.organization_id)
    succeed(debtor.agent.upload(b"more"), 201)
    succeed(debtor.agent.replace(debtor.file))


def test_the_payer_decides_and_not_the_organization_of_the_file(front: Front, debtor: Debtor) -> None:
    solvent = front.identity.organization("Solvent").id
    debtor.calls.run(
        "UPDATE files SET payer_id = :payer WHERE id = :id", payer=solvent, id=UUID(debtor.file["id"])
    )
    succeed(debtor.agent.replace(debtor.file))
    refuse(debtor.agent.upload(b"more"), 402, "insufficient_credits")


def test_credits_report_since_when_storage_is_unpaid(front: Front, debtor: Debtor) -> None:
    shown = debtor.owner.ask("GET", "/v1/credits").get_json()
    assert shown["storage_overdue_since"] < shown["storage_refused_from"]
    path = f"/admin/organizations/{debtor.organization_id}/credits"
    administered = succeed(debtor.owner.ask("GET", path))
    assert administered["storageRefusedFrom"] == shown["storage_refused_from"]
