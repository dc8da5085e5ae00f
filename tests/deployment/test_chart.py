"""The chart as Helm renders it: valid for Kubernetes, with the same processes as the other descriptions."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.make_secrets import main as make_secrets
from deploy.process_types import PROCESS_TYPES
from shared.config.settings import Settings
from shared.messaging.queues import QUEUES
from tests.deployment.conftest import Render, RunTool
from tests.support.data.deployment_files import find_differences, read_chart
from tests.support.processes.collected_cases import found
from web.server.server_settings import ServerSettings

FULL: Mapping[str, Any] = {
    "keda": {"enabled": True},
    "models": {"catalog": "[providers.scripted]\nkind = 'scripted'\n"},
    "secrets": {"migrations": "migrations", "providers": "providers"},
    "ingress": {"enabled": True, "host": "files.example", "className": "nginx", "tlsSecret": "tls"},
    "settings": {"S3_REGION": "eu-central-1", "RATE_LIMIT_PER_MINUTE": 100},
}
NAMES = ("backlog", "backlog_oldest_seconds")
SCALED_OBJECT = json.loads(Path(__file__).with_name("scaled_object.json").read_text())


def of_kind(manifests: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """Return the manifests of a kind, by their process."""
    return {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each
        for each in manifests
        if each["kind"] == kind
    }


@pytest.fixture(scope="module")
def full(render: Render) -> list[dict[str, Any]]:
    return render(FULL)


@pytest.mark.parametrize("values", [{}, FULL], ids=["as it comes", "with everything"])
def test_kubernetes_understands_every_manifest(
    render: Render, run_tool: RunTool, tmp_path: Path, values: Mapping[str, Any]
) -> None:
    manifests = render(values)
    own = [each for each in manifests if each["kind"] != "ScaledObject"]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(own))
    validated = run_tool("kubernetes-validate", "--strict", tmp_path / "all.yaml")
    assert validated.returncode == 0, validated.stdout + validated.stderr
    assert (validated.stdout + validated.stderr).count(" passed ") == len(own)
    for scaled in of_kind(manifests, "ScaledObject").values():
        jsonschema.validate(scaled, SCALED_OBJECT)


def test_the_chart_describes_the_same_processes(full: list[dict[str, Any]], tmp_path: Path) -> None:
    make_secrets(tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    keys = {
        "quartermaster": files - {"migrations_database_url"},
        "migrations": {"migrations_database_url"},
        "providers": {"OPENAI_API_KEY"},
    }
    assert list(find_differences(read_chart(full, keys))) == []


def test_every_process_but_the_migration_has_probes_a_budget_and_two_pods(full: list[dict[str, Any]]) -> None:
    running = PROCESS_TYPES.keys() - {"release"}
    assert of_kind(full, "Deployment").keys() == of_kind(full, "PodDisruptionBudget").keys() == running
    for deployment in found(of_kind(full, "Deployment").values()):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
        assert [probe["path"] for probe in probes] == ["/healthz", "/healthz", "/readyz"]
        assert {probe["port"] for probe in probes} == {"operations"}


def test_the_migration_runs_before_every_release_with_its_own_policy(full: list[dict[str, Any]]) -> None:
    for kind in ("Job", "NetworkPolicy"):
        hooks = of_kind(full, kind)["release"]["metadata"]["annotations"]
        assert hooks["helm.sh/hook"] == "pre-install,pre-upgrade"


def test_pods_have_no_rights_they_do_not_need(full: list[dict[str, Any]]) -> None:
    for pod in (*of_kind(full, "Deployment").values(), *of_kind(full, "Job").values()):
        spec = pod["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_variables_of_pods_are_settings(full: list[dict[str, Any]]) -> None:
    known = {field.upper() for fields in (Settings, ServerSettings) for field in fields.model_fields}
    known |= {"SECRETS_DIRECTORY"}
    for deployment in found(of_kind(full, "Deployment").values()):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert {each["name"] for each in container["env"]} <= known


def test_scaling_is_by_states_that_are_measured(full: list[dict[str, Any]]) -> None:
    measured = {"staged", "doomed", "receiving", "due", "imports", "turns", "deliveries", "model_calls"}
    triggers = [
        trigger["metadata"]["query"]
        for scaled in of_kind(full, "ScaledObject").values()
        for trigger in scaled["spec"]["triggers"]
        if trigger["type"] == "prometheus"
    ]
    found = {re.sub(r"^max\((.*)\)$", r"\1", query) for query in triggers}
    known = {f'quartermaster_{name}{{state="{state}"}}' for name in NAMES for state in measured}
    assert found <= known | {f'quartermaster_queue_messages{{queue="{queue}"}}' for queue in QUEUES}
    assert all(any(each.startswith(f"quartermaster_{name}{{") for each in found) for name in NAMES)


def test_only_what_may_be_scaled_has_no_number_of_pods(full: list[dict[str, Any]], render: Render) -> None:
    fixed = {name for name, each in of_kind(full, "Deployment").items() if "replicas" in each["spec"]}
    assert of_kind(full, "ScaledObject").keys() == PROCESS_TYPES.keys() - {"release"} - fixed
    plain = render({})
    assert of_kind(plain, "ScaledObject") == {}
    assert all("replicas" in each["spec"] for each in of_kind(plain, "Deployment").values())


@pytest.mark.parametrize(
    "wrong",
    [
        {"baseUrl": "files.example"},
        {"settings": {"lower": "case"}},
        {"replicas": 3},
        {"processes": {"web": {"egress": "anywhere"}}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_wrong_values_are_refused(run_tool: RunTool, wrong: Mapping[str, Any]) -> None:
    here = Path(__file__)
    chart = here.parents[2] / "deploy" / "chart"
    done = run_tool("python", here.with_name("render.py"), chart, json.dumps(wrong))
    assert done.returncode != 0
