"""A scrape of a running installation has every metric that an alert, a dashboard or a page of the docs names."""

import json
import re
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
import yaml

from deploy.process_types import WORKERS
from tests.deploy.test_alerts import rules
from tests.journeys.observed.conftest import Observed
from tests.journeys.test_remote_agents import attachment, is_over
from tests.support.agents.rest_clients import Client
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import MediaSource, content
from tests.support.processes.stack import ROOT, TookTooLong, wait_until
from tests.support.servers.prometheus import Selector, read_expression, scrape

DEPLOY = ROOT / "deploy"
PAGES = (DEPLOY / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
SCRAPE_SECONDS = 90.0
SCRAPE_PAUSE_SECONDS = 1.0
ROLES_IN_POSTGRES = {"quartermaster_app", "quartermaster_migrations"}
_NAMED = re.compile(r"`(quartermaster_[a-z0-9_]+(?:\{[^}`]*\})?)`")


def expressions() -> Iterator[tuple[str, str]]:
    """Yield every expression in the shipped files and the docs, and its place."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for file in sorted((DEPLOY / "grafana").glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{file.name}: {panel['title']}", target["expr"]
    yield from scaling()
    for page in PAGES:
        for name in sorted(set(_NAMED.findall(page.read_text())) - ROLES_IN_POSTGRES):
            yield str(page.relative_to(ROOT)), name


def scaling() -> Iterator[tuple[str, str]]:
    """Yield the queries of the chart's KEDA triggers, which templates write from its values."""
    template = (DEPLOY / "chart" / "templates" / "scaled_objects.yaml").read_text()
    asked = re.findall(r'printf "(max\([a-z_]+\{[a-z]+=%q\}\))" (\$[a-z]+)', template)
    processes = yaml.safe_load((DEPLOY / "chart" / "values.yaml").read_text())["processes"]
    assert {variable for _, variable in asked} == {"$queue", "$state"}
    for name, process in processes.items():
        for expression, variable in asked:
            for value in process.get({"$queue": "messages", "$state": "queues"}[variable]) or ():
                yield f"chart: {name}", expression.replace("%q", f'"{value}"')


def use(observed: Observed) -> None:
    """Do everything that is counted, once: media, turns, deliveries, a model call, refusals, a deletion."""
    house = observed.house
    with MediaSource() as source:
        photo = source.serve("/photo", content(PNG.content, PNG.media_type))
        taken = house.push(conversationId="c-1", text="What is this?", attachments=[attachment(photo)])
        house.answered(taken["taskId"])
    wait_until(lambda: is_over(house.network.updates(taken["messageId"])), "the distribution is told")
    file = house.agent.upload(b"soon gone", operation=uuid4()).json()
    assert house.agent.download(file["id"]).content == b"soon gone"
    assert house.owner.delete(file["id"], operation=uuid4()).status_code == 200
    assert Client(house.url, "svk_wrong").request("GET", "/v1/models").status_code == 401
    said = {"model": "scripted/echo", "messages": [{"role": "user", "content": "Hello"}]}
    assert house.owner.request("POST", "/v1/chat/completions", json=said).status_code == 200


def test_every_named_metric_is_scraped_with_its_labels(observed: Observed) -> None:
    use(observed)
    wanted: list[tuple[str, Selector]] = [
        (where, selector) for where, expression in expressions() for selector in read_expression(expression)
    ]
    assert len(wanted) > 100
    missing: set[str] = set()

    def is_everything_found() -> bool:
        time.sleep(SCRAPE_PAUSE_SECONDS)
        series = scrape(list(observed.targets.values()))
        missing.clear()
        missing.update(f"{where}: {at}" for where, at in wanted if not at.is_found_in(series))
        return not missing

    try:
        wait_until(is_everything_found, "all are found", seconds=SCRAPE_SECONDS)
    except TookTooLong:
        pytest.fail("\n".join(sorted(missing)))


def test_each_process_reports_its_own_metrics_and_no_label_is_an_id(observed: Observed) -> None:
    roles = {"web": "web", "beat": "beat"} | {name: f"worker-{name}" for name in WORKERS}
    ids = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-|[0-9a-f]{32}")
    for name, address in observed.targets.items():
        series = scrape([address])
        assert {labels["role"] for labels in series["quartermaster_processes"]} == {roles[name]}
        values = {value for of_name in series.values() for labels in of_name for value in labels.values()}
        assert not [value for value in values if ids.search(value)]
