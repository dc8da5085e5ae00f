"""Published generators read the document without relevant warnings, and their clients work."""

import json
from pathlib import Path

import pytest

from tests.openapi.conftest import HERE, run
from tests.support.agents.rest_clients import exchange_token
from tests.support.models.model_service import ModelService

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def generated(tools: Path, document: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate the Python client."""
    directory = tmp_path_factory.mktemp("generated")
    generator: list[str | Path] = [tools / "venv/bin/openapi-python-client", "generate", "--path", document]
    ran = run(
        [*generator, "--output-path", directory / "client", "--config", HERE / "generator.yaml"], directory
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "warning" not in (ran.stdout + ran.stderr).lower(), ran.stdout + ran.stderr
    return directory / "client"


def test_every_module_of_the_generated_client_imports(tools: Path, generated: Path) -> None:
    modules = [
        ".".join(path.relative_to(generated).with_suffix("").parts)
        for path in sorted(generated.rglob("*.py"))
    ]
    assert len(modules) > 300
    program = f"from importlib import import_module\nfor name in {modules!r}: import_module(name)"
    ran = run([tools / "venv/bin/python", "-c", program], generated)
    assert ran.returncode == 0, ran.stderr


def test_generated_client_uploads_shares_and_calls_a_model(
    service: ModelService, tools: Path, generated: Path
) -> None:
    token = exchange_token(service.front.url, service.credentials)
    program = [tools / "venv/bin/python", HERE / "generated_client.py"]
    ran = run(["env", f"PYTHONPATH={generated}", *program, service.front.url, token, service.api_key], HERE)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert (report["replayed"], report["followed"]) == (False, "made by an agent")
    assert "scripted/echo" in report["models"]
    assert "hello" in report["reply"].lower()
    assert report["tokens"] > 0


def test_the_types_that_are_generated_for_typescript_compile(
    node: Path, document: Path, tmp_path: Path
) -> None:
    types = tmp_path / "quartermaster.d.ts"
    ran = run([node / "node_modules/.bin/openapi-typescript", document, "--output", types], tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "warn" not in (ran.stdout + ran.stderr).lower(), ran.stdout + ran.stderr
    compiled = run([node / "node_modules/.bin/tsc", "--noEmit", "--strict", types], tmp_path)
    assert compiled.returncode == 0, compiled.stdout
    assert "ChatCompletion: {" in types.read_text()


def test_redocly_finds_no_problem_in_the_document(node: Path, document: Path, tmp_path: Path) -> None:
    linter = node / "node_modules/.bin/redocly"
    command: list[str | Path] = [
        linter,
        "lint",
        document,
        "--config",
        HERE / "redocly.yaml",
        "--format",
        "json",
    ]
    ran = run(command, tmp_path)
    found = json.loads(ran.stdout[ran.stdout.index("{") :])
    assert found["totals"] == {"errors": 0, "warnings": 0, "ignored": 0}, found["problems"]
