"""The alerts: each has a runbook entry, each guarantee has rules, and Prometheus evaluates them as expected."""

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.processes.collected_cases import found
from tests.support.processes.stack import ROOT

RULES = ROOT / "deploy" / "alerts" / "quartermaster.yaml"
CASES = ROOT / "tests" / "support" / "alert_cases.yaml"
PROMISES = (
    *("nothing-is-lost", "nobody-is-starved", "retention-is-on-time", "money-is-exact"),
    *("processes-are-up", "queues-are-short", "there-is-room"),
)


def groups() -> dict[str, list[dict[str, Any]]]:
    return {group["name"]: group["rules"] for group in yaml.safe_load(RULES.read_text())["groups"]}


def rules() -> Iterator[dict[str, Any]]:
    for of_group in groups().values():
        yield from of_group


def test_every_alert_leads_to_what_to_do() -> None:
    runbook = (ROOT / "deploy" / "README.md").read_text()
    for rule in found(rules()):
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page == "deploy/README.md"
        assert f'<a id="{anchor}"></a>' in runbook, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_each_promise_has_a_group_of_rules() -> None:
    assert {f"quartermaster-{promise}" for promise in PROMISES} <= groups().keys()


def test_the_cases_count_every_alert() -> None:
    amiss = yaml.safe_load(CASES.read_text())["tests"][1]["promql_expr_test"][0]
    assert amiss["exp_samples"][0]["value"] == len(list(rules()))


@pytest.mark.parametrize(
    "arguments", [("check", "rules", RULES), ("test", "rules", CASES)], ids=["check", "test"]
)
def test_prometheus_takes_the_rules_and_fires_them_where_all_is_amiss_alone(
    arguments: tuple[Any, ...],
) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
