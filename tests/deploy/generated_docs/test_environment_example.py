"""`deploy/environment.example` has every setting with its description and default, and no unknown variable."""

import re
from pathlib import Path

import pytest

from deploy import process_types
from deploy.generated_docs import environment_example
from shared.config.settings import Settings
from shared.observability.tracing import ENDPOINTS
from tests.support.data.identity import make_settings
from web.server.server_settings import ServerSettings

DEPLOY = Path(environment_example.__file__).parents[1]
EXAMPLE = environment_example.EXAMPLE.read_text()
DEPLOYMENT = EXAMPLE.partition(environment_example.BY_HAND)[2]

READ = re.compile(r"environ(?:ment)?(?:\.get\(|\[)[\"']([A-Z][A-Z0-9_]+)[\"']")
OPTIONAL = re.compile(r"^#([A-Z][A-Z0-9_]+)=(.*)$", re.MULTILINE)
NAMED = re.compile(r"^#?([A-Z][A-Z0-9_]+)=", re.MULTILINE)
SURROUNDINGS = {
    "PATH",
    "HOME",
    "MAKELEVEL",
    "BASE_URL",
    "LOG_LEVEL",
    "METRICS_DIRECTORY",
    "SLOT_WAIT_SECONDS",
    "WEB_THREADS",
    "TASK_EVENTS",
}
"""Variables that deployment code reads itself."""


def test_the_file_is_what_make_environment_writes() -> None:
    assert environment_example.render() == EXAMPLE


def test_every_setting_stands_there_in_a_group_with_its_meaning() -> None:
    meanings = {name: text for _, group in environment_example.read_groups() for name, text in group.items()}
    assert list(meanings) == list(Settings.model_fields)
    assert [name for name, text in meanings.items() if not text.endswith(".")] == []
    assert f"# {meanings['redis_url']}\nREDIS_URL=\n" in EXAMPLE
    assert f"# {meanings['web_threads']}\n#WEB_THREADS=448\n" in EXAMPLE


def test_every_default_may_be_taken_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written = {name.lower(): value for name, value in OPTIONAL.findall(EXAMPLE) if value}
    defaults = {
        name: Settings.model_fields[name].default for name in written if name in Settings.model_fields
    }
    for name in defaults:
        monkeypatch.setenv(name.upper(), written[name])
    given = ("base_url", "live_row_cache_seconds")
    read = make_settings(**{name: written[name] for name in given})
    assert {name: getattr(read, name) for name in defaults} == defaults


def test_every_variable_that_deployment_reads_stands_there_and_no_other() -> None:
    sources = [*DEPLOY.rglob("*.py"), *(DEPLOY.parent / "web/server").glob("*.py")]
    read = {name for source in sources for name in READ.findall(source.read_text())}
    read |= {name.upper() for name in ServerSettings.model_fields}
    read |= {worker.threads_variable for worker in process_types.WORKERS.values()}
    read |= {ENDPOINTS[0], "OTEL_TRACES_SAMPLER"}  # by OpenTelemetry's SDK
    assert set(NAMED.findall(DEPLOYMENT)) == read - SURROUNDINGS


def test_a_default_of_the_front_is_the_one_that_stands_there() -> None:
    written = {
        name: value
        for name, value in OPTIONAL.findall(EXAMPLE)
        if name.lower() in ServerSettings.model_fields
    }
    assert written == {
        name.upper(): f"{field.default}" for name, field in ServerSettings.model_fields.items()
    }


def test_no_variable_stands_there_twice() -> None:
    names = NAMED.findall(EXAMPLE)
    assert len(names) == len(set(names))
