"""`quartermaster doctor` reports problems with remedies; `status` reports processes and backlogs."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.fernet import Fernet
from prometheus_client import CollectorRegistry
from sqlalchemy import text

from deploy.cli.main import main
from deploy.embedded.ports import find_free_port
from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from shared.files.blobs import open_blob_store
from shared.ids import new_id
from shared.observability.multiprocess_metrics import HostMetrics
from tests.contracts.blob_stores import put

ALL = [
    "web",
    "worker-files",
    "worker-models",
    "worker-media",
    "worker-agents",
    "worker-background",
    "worker-ledger",
]


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the store that belongs to this module's database."""
    return tmp_path_factory.mktemp("store") / "blobs"


@pytest.fixture
def environment(
    database_url: str, valkey_server: EmbeddedValkey, blobs: Path, tmp_path: Path
) -> dict[str, str]:
    (tmp_path / "metrics").mkdir()
    return {
        "DATABASE_URL": database_url,
        "REDIS_URL": valkey_server.url,
        "BLOB_STORE": blobs.as_uri(),
        "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
        "METRICS_DIRECTORY": str(tmp_path / "metrics"),
    }


def run(environment: dict[str, str], *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, words, env=environment, catch_exceptions=False)
    return result.exit_code, result.output


def findings(environment: dict[str, str], *words: str) -> dict[tuple[str, str], str]:
    """Return the findings that are not ok, by subject and state."""
    _, printed = run(environment, "doctor", "--json", *words)
    return {
        (each["subject"], each["state"]): f"{each['said']} {each['remedy']}"
        for each in json.loads(printed)["findings"]
        if each["state"] != "ok"
    }


def test_a_sound_installation_is_well(environment: dict[str, str]) -> None:
    processes = [HostMetrics(Path(environment["METRICS_DIRECTORY"]), name) for name in [*ALL, "beat"]]
    for process in processes:
        process.start()
    try:
        code, printed = run(environment, "doctor")
        states = {line.split(maxsplit=1)[0] for line in printed.splitlines() if line[0] != " "}
        assert (code, states - {"warning"}) == (0, {"ok"}), printed
        assert "processes: 1 beat, 1 web, 1 worker-agents" in printed
        _, shown = run(environment, "status", "--json")
        assert json.loads(shown)["processes"] == dict.fromkeys([*ALL, "beat"], 1)
        assert "turns of agents" in run(environment, "status")[1]
    finally:
        for process in processes:
            process.stop()


def test_each_process_that_does_not_run_here_is_named(environment: dict[str, str]) -> None:
    only = HostMetrics(Path(environment["METRICS_DIRECTORY"]), "web", registry=CollectorRegistry())
    only.write()
    _, printed = run(environment, "doctor")
    assert "no beat runs on this host" in printed
    assert "Start `quartermaster worker models`" in printed
    assert "no web runs" not in printed
    only.stop()


def test_a_service_that_is_away_hides_none_of_the_others(environment: dict[str, str]) -> None:
    away = environment | {
        "REDIS_URL": f"redis://127.0.0.1:{find_free_port()}/0",
        "BROKER_URL": f"amqp://127.0.0.1:{find_free_port()}",
        "DATABASE_URL": f"postgresql://nobody@127.0.0.1:{find_free_port()}/none",
    }
    code, _ = run(away, "doctor")
    found = findings(away)
    assert code == 1
    assert {"Postgres", "Valkey", "broker", "waiting work"} <= {
        subject for subject, state in found if state == "wrong"
    }
    assert "compare DATABASE_URL" in found["Postgres", "wrong"]
    assert "compare REDIS_URL" in found["Valkey", "wrong"]
    assert "compare BROKER_URL" in found["broker", "wrong"]


def test_a_schema_of_another_release_is_wrong(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ("Postgres", "wrong") not in findings(environment)
    monkeypatch.setattr("deploy.cli.health_report.newest_revision", lambda: "9999")
    assert "this release needs 9999" in findings(environment)["Postgres", "wrong"]
    assert "quartermaster migrate" in findings(environment)["Postgres", "wrong"]


def test_a_lost_store_and_a_catalog_that_makes_no_sense_are_wrong(
    environment: dict[str, str], blobs: Path, tmp_path: Path
) -> None:
    assert ("blob store", "wrong") not in findings(
        environment
    )  # from now on the store belongs to the database
    aside = blobs.rename(blobs.with_name("aside"))
    (tmp_path / "models.toml").write_text("[[models]]\nid = 7\n")
    found = findings(environment | {"MODELS_CONFIG": str(tmp_path / "models.toml")})
    shutil.rmtree(blobs, ignore_errors=True)
    aside.rename(blobs)
    assert "BLOB_STORE" in found["blob store", "wrong"]
    assert "MODELS_CONFIG" in found["models", "wrong"]


def test_doctor_deep_reports_discrepancies_and_repairs_the_safe_ones(
    environment: dict[str, str], database: Database, blobs: Path, tmp_path: Path
) -> None:
    code, printed = run(environment, "doctor", "--deep")
    assert code == 0, printed
    assert "ok       stored content: rows and bytes agree" in printed
    assert "ok       ledger: all figures agree" in printed
    missing, unknown = new_id(), put(open_blob_store(blobs.as_uri())).version_id
    row = "INSERT INTO blobs (version_id, state, byte_size) VALUES (:id, 'live', 3)"
    with database.autocommit() as session:
        session.execute(text(row), {"id": missing})
    report = tmp_path / "report.jsonl"
    code, printed = run(environment, "doctor", "--deep", "--repair", "--report", str(report))
    assert code == 1
    assert f"1 versions have no bytes: {missing}" in printed
    assert f"1 versions are unknown to the database: {unknown}" in printed
    assert {json.loads(line)["versionId"] for line in report.read_text().splitlines()} == {
        str(missing),
        str(unknown),
    }
    with database.autocommit() as session:
        session.execute(text("DELETE FROM blobs WHERE version_id = :id"), {"id": missing})
    found = findings(environment, "--deep", "--discard-unknown")
    assert str(unknown) in found["stored content", "mended"]
    assert ("stored content", "wrong") not in found


def test_what_only_a_deep_look_can_do_is_refused_without_it(environment: dict[str, str]) -> None:
    code, printed = run(environment, "doctor", "--repair")
    assert (code, "need --deep" in printed) == (2, True)
