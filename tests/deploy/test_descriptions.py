"""Procfile, compose file, units and runbook describe the same processes, with the same settings and network access.

`make test-deploy` compares the rendered chart with the same description.
"""

import copy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import process_types
from shared.messaging.queues import WORKER_QUEUES
from tests.support.data.deployment_files import (
    Descriptions,
    find_differences,
    read_compose,
    read_procfile,
    read_runbook,
    read_units,
)

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
UNITS = DEPLOY / "systemd"
FORMS: dict[str, Callable[[], Descriptions]] = {
    "Procfile": lambda: read_procfile((ROOT / "Procfile").read_text()),
    "compose": lambda: read_compose(COMPOSE),
    "units": lambda: read_units(UNITS),
    "runbook": lambda: read_runbook((DEPLOY / "README.md").read_text()),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_describes_the_same_processes(form: str) -> None:
    assert list(find_differences(FORMS[form]())) == []


def test_every_worker_is_a_process_type_and_serves_queues() -> None:
    workers = {name.removeprefix("worker-") for name in process_types.PROCESS_TYPES if "worker" in name}
    assert workers == set(process_types.WORKERS) == set(WORKER_QUEUES)


def broken(change: Callable[[dict[str, Any]], None]) -> list[str]:
    document = copy.deepcopy(COMPOSE)
    change(document)
    return list(find_differences(read_compose(document)))


def test_media_workers_without_a_way_out_are_noticed() -> None:
    def shut(document: dict[str, Any]) -> None:
        document["services"]["worker-media"]["networks"] = ["inside"]

    (found,) = broken(shut)
    assert found.startswith("worker-media: may reach")


def test_a_catalog_and_keys_that_reach_no_process_are_noticed() -> None:
    def forget(document: dict[str, Any]) -> None:
        for service in document["services"].values():
            service.get("environment", {}).pop("MODELS_CONFIG", None)
            service.pop("env_file", None)

    assert {
        "web: lacks MODELS_CONFIG",
        "worker-models: lacks MODELS_CONFIG",
        "worker-agents: lacks MODELS_CONFIG",
        "worker-models: lacks the keys of providers",
        "worker-agents: lacks the keys of providers",
    } == set(broken(forget))


def test_network_access_of_web_and_an_unknown_process_are_detected() -> None:
    def add(document: dict[str, Any]) -> None:
        document["services"]["web"]["networks"].append("outside")
        document["services"]["worker-more"] = document["services"]["worker-files"]

    assert {"web: may reach", "worker-more is described"} == {
        " ".join(found.split()[:3]) for found in broken(add)
    }


def verify_units(directory: Path) -> str:
    """Verify units with systemd, and return its output: its status is 0 for unknown keys too."""
    names = [f"quartermaster-{unit}.service" for unit in ("web", "beat", "release")]
    names += [f"quartermaster-worker@{name}.service" for name in process_types.WORKERS]
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "quartermaster.target", *names],
        env={"SYSTEMD_UNIT_PATH": f"{directory}:", "PATH": "/usr/bin:/bin"},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return verified.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_every_line_of_the_units(tmp_path: Path) -> None:
    units = tmp_path / "units"
    shutil.copytree(UNITS, units)
    for unit in units.glob("*.service"):  # systemd also checks that the program exists
        unit.write_text(unit.read_text().replace("/opt/quartermaster/bin/quartermaster", "/bin/true"))
    assert verify_units(units) == ""
    common = units / "quartermaster-.service.d" / "10-common.conf"
    common.write_text(common.read_text().replace("ProtectHome", "ProtectHouse"))
    assert "ProtectHouse" in verify_units(units)


def test_processes_of_one_host_have_operations_ports_of_their_own() -> None:
    lines = [line for path in UNITS.rglob("*") if path.is_file() for line in path.read_text().splitlines()]
    ports = [line for line in lines if line.startswith("Environment=OPERATIONS_PORT=")]
    assert (
        len(set(ports)) == len(ports) == len(process_types.PROCESS_TYPES) - 1
    )  # the migration ends by itself
