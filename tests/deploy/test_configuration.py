"""Compose file, secrets, catalog and requirements agree with the code."""

import re
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import make_secrets
from deploy.secret_files import read_secret_files
from shared.config.settings import Settings
from shared.models.catalog_format import parse_catalog
from web.server.server_settings import ServerSettings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if "build" in service}


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_containers_have_no_rights_they_do_not_need(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_only_the_front_is_published() -> None:
    assert [name for name, service in COMPOSE["services"].items() if "ports" in service] == ["web"]
    assert COMPOSE["networks"]["inside"] == {"internal": True}


def test_every_process_of_the_compose_file_is_asked_for_its_health() -> None:
    ours = {name: each for name, each in COMPOSE["services"].items() if "quartermaster" in each["image"]}
    assert [name for name, each in ours.items() if "healthcheck" in each] == [
        "release"
    ]  # the release process ends by itself
    assert "/readyz" in (DEPLOY / "Dockerfile").read_text().partition("HEALTHCHECK")[2]


def test_every_secret_of_the_compose_file_is_made(tmp_path: Path) -> None:
    make_secrets.main(tmp_path / "secrets")
    made = {path.name for path in (tmp_path / "secrets").iterdir()}
    used = {secret for service in COMPOSE["services"].values() for secret in service.get("secrets", ())}
    assert made == used == set(COMPOSE["secrets"])
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700


def test_only_the_release_may_change_the_schema(tmp_path: Path) -> None:
    holders = [name for name, service in OURS.items() if "migrations_database_url" in service["secrets"]]
    assert holders == ["release"]
    make_secrets.main(tmp_path)
    assert (tmp_path / "database_url").read_text().startswith("postgresql://quartermaster_app:")
    owner = (tmp_path / "migrations_database_url").read_text()
    assert owner.startswith("postgresql://quartermaster_migrations:")
    # The image runs the scripts in the order of their names: the roles must exist before their passwords are set.
    scripts = sorted(path.name for path in (DEPLOY / "postgres").iterdir())
    assert scripts == ["roles.sql", "roles_passwords.sh"]


def test_secrets_of_an_installation_without_roles_still_open_its_database(tmp_path: Path) -> None:
    (tmp_path / "database_url").write_text("postgresql://quartermaster:known@postgres/quartermaster")
    make_secrets.main(tmp_path)
    assert (tmp_path / "migrations_database_url").read_text() == (tmp_path / "database_url").read_text()


def test_secrets_that_exist_are_kept(tmp_path: Path) -> None:
    make_secrets.main(tmp_path)
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    make_secrets.main(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", OURS)
def test_a_containers_variables_and_secrets_are_settings(name: str) -> None:
    given = {*OURS[name]["environment"], *(secret.upper() for secret in OURS[name]["secrets"])}
    assert given <= {field.upper() for fields in (Settings, ServerSettings) for field in fields.model_fields}


def test_first_catalog_has_a_scripted_model_and_is_never_replaced(tmp_path: Path) -> None:
    make_secrets.write_catalog(tmp_path / "models")
    written = tmp_path / "models" / "models.toml"
    assert len(parse_catalog(written.read_text(), source="written")) == 1
    for name in ("web", "worker-models", "worker-agents"):
        assert OURS[name]["environment"]["MODELS_CONFIG"] == "/etc/quartermaster/models.toml"
        assert "./models:/etc/quartermaster:ro" in OURS[name]["volumes"]
    written.write_text("mine")
    make_secrets.write_catalog(tmp_path / "models")
    assert written.read_text() == "mine"


def test_mounted_secrets_become_settings_that_a_variable_overrides(tmp_path: Path) -> None:
    (tmp_path / "database_url").write_text("postgresql://from-file\n")
    (tmp_path / "redis_url").write_text("redis://from-file\n")
    (tmp_path / "..data").mkdir()
    environment = {"SECRETS_DIRECTORY": str(tmp_path), "REDIS_URL": "redis://by-hand"}
    read_secret_files(environment)
    assert environment["DATABASE_URL"] == "postgresql://from-file"
    assert environment["REDIS_URL"] == "redis://by-hand"


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("requirements*.txt")), ids=lambda path: path.name)
def test_requirements_are_pinned_with_hashes_and_name_no_place(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"://|--(index|extra-index|find-links|trusted-host)", text)
    entries = re.split(r"\n(?=\S)", re.sub(r"(?m)^ *#.*\n?", "", text).strip())
    assert entries
    assert all(re.match(r"[\w.\[\]-]+==\S+", entry) and "--hash=sha256:" in entry for entry in entries)
