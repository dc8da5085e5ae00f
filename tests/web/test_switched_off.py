"""Limits and timeouts set to 0, and disabled features, behave as the settings' documentation says."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text

from deploy.cli.first_run import first_run
from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.behaviors.stored_files import StoredFiles
from shared.db.database import Database
from shared.ids import new_id
from tests.support.data.identity import make_settings
from tests.support.files.file_requests import succeed
from tests.support.servers.databases import clone
from tests.support.web.web_process import Front, open_front
from tests.web.files.conftest import agent_of

OFF = {
    "rate_limit_per_minute": 0,
    "failed_logins_per_minute": 0,
    "blob_store_reserve_bytes": 0,
    "upload_wait_seconds": 0,
    "slot_wait_seconds": 0,
    "absent_store_is_false": True,
}


@pytest.fixture(scope="module")
def switched(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    with open_front(database_url, valkey_server.url, tmp_path_factory.mktemp("off"), **OFF) as front:
        yield front


def test_limits_of_zero_are_disabled(switched: Front) -> None:
    person = switched.identity.person(switched.identity.organization().id)
    answers = [switched.get("/admin/me", person.authorization) for _ in range(20)]
    assert {answer.status_code for answer in answers} == {200}
    assert not any("RateLimit" in answer.headers for answer in answers)
    wrong = [switched.get("/admin/me", "Bearer svk_wrong") for _ in range(70)]
    assert {answer.status_code for answer in wrong} == {401}


def test_upload_works_without_reserve_and_timeouts(switched: Front) -> None:
    agent = agent_of(switched, switched.identity.deployment(switched.identity.organization().id))
    file = succeed(agent.upload(b"content"), 201)
    assert succeed(agent.metadata(file))["availability"] == "Available"
    assert agent.content(file).data == b"content"


def test_absent_store_means_false_if_configured(switched: Front) -> None:
    person = switched.identity.person(switched.identity.organization().id, bound=True)
    body = {"model": "scripted/echo", "input": "hello"}
    answer = switched.post("/v1/responses", person.authorization, json=body)
    # The request was understood; it only lacks credits.
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (402, "insufficient_credits")


def test_files_of_agents_have_no_deadline_where_that_is_off(switched: Front) -> None:
    turn: Any = SimpleNamespace(id=new_id())
    services = switched.services
    deadlines = {
        days: StoredFiles(
            services.database, services.blobs, make_settings(a2a_artifact_retention_days=days)
        )._deadline(turn)
        for days in (0, 1)
    }
    assert deadlines[0] is None
    assert deadlines[1] is not None


@pytest.mark.parametrize(("amount", "entries"), [("0", []), ("0.000001", [1])])
def test_first_start_without_credits_grants_none(
    postgres_server: EmbeddedPostgres,
    migrated_template: str,
    tmp_path: Path,
    amount: str,
    entries: list[int],
) -> None:
    url = clone(postgres_server, migrated_template).replace("postgresql://", "postgresql+psycopg2://", 1)
    database = Database(url)
    try:
        first_run(database, make_settings(first_run_credits=amount), tmp_path / "credentials.json")
        with database.autocommit() as session:
            assert list(session.execute(text("SELECT amount FROM ledger_entries")).scalars()) == entries
    finally:
        database.dispose()
