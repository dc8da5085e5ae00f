"""Published clients and frameworks work with the service, in each dialect and over upstreams of both dialects."""

import json
import os
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.models.model_service import ModelService

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
UPSTREAMS = {"chat": "scripted/echo", "responses": "scripted/echo-responses"}
COST = Decimal("0.00001")
NOT_FOUND = ["NotFoundError", 404]
REFUSALS: dict[tuple[str, str], list[Any]] = {
    ("with_langchain", "chat"): ["OpenAIModelNotFoundError", 404],
    ("with_langchain", "responses"): ["OpenAIModelNotFoundError", 404],
    ("with_litellm", "chat"): NOT_FOUND,
    ("with_litellm", "responses"): NOT_FOUND,
    ("with_litellm", "messages"): NOT_FOUND,
    ("with_openai_agents", "chat"): NOT_FOUND,
    ("with_openai_agents", "responses"): NOT_FOUND,
    ("with_pydantic_ai", "chat"): ["ModelNotFoundError", 404],
    ("with_pydantic_ai", "responses"): ["ModelNotFoundError", 404],
    ("with_pydantic_ai", "messages"): ["ModelNotFoundError", 404],
    ("with_openai.mjs", "chat"): NOT_FOUND,
    ("with_openai.mjs", "responses"): NOT_FOUND,
    ("with_anthropic.mjs", "messages"): NOT_FOUND,
    ("with_ai.mjs", "chat"): ["APICallError", 404],
    ("with_ai.mjs", "responses"): ["APICallError", 404],
    ("with_ai.mjs", "messages"): ["APICallError", 404],
}
"""By client and dialect: the error that the client raises if a model is unknown."""
KEEPS_COST = {
    ("with_langchain", "chat"),
    ("with_litellm", "chat"),
    ("with_litellm", "responses"),
    ("with_openai.mjs", "chat"),
    ("with_openai.mjs", "responses"),
    ("with_anthropic.mjs", "messages"),
    ("with_ai.mjs", "responses"),
    ("with_ai.mjs", "messages"),
}
"""Clients that report the cost. The others keep only the fields of usage that they know."""
OFFLINE = {
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

Reports = dict[str, Any]


@pytest.fixture(scope="module", params=list(UPSTREAMS))
def upstream(request: pytest.FixtureRequest) -> str:
    """Return a dialect of upstreams."""
    name: str = request.param
    return name


@pytest.fixture(scope="module", params=list(REFUSALS), ids="-".join)
def client(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Return a client's program and its dialect."""
    pair: tuple[str, str] = request.param
    return pair


@pytest.fixture(scope="module")
def reports(
    request: pytest.FixtureRequest,
    service: ModelService,
    environment: Path,
    client: tuple[str, str],
    upstream: str,
) -> Reports:
    """Run a client once. Return its result of each step."""
    program, dialect = client
    if program.endswith(".mjs"):
        command = [request.getfixturevalue("node"), HERE / program]
    else:
        command = [environment / "venv/bin/python", "-m", "tests.strict_clients.run", program]
    asked = [service.front.url, service.api_key, UPSTREAMS[upstream], dialect]
    inherited = {name: value for name, value in os.environ.items() if name.lower() not in PROXIES}
    ran = subprocess.run(
        [*map(str, command), *asked],
        cwd=ROOT,
        env={**inherited, **OFFLINE, "STRICT_CLIENTS": str(environment)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found: Reports = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("step", ["plain", "streamed"])
def test_a_reply_and_its_usage_are_read(reports: Reports, step: str) -> None:
    report = reports[step]
    assert isinstance(report, dict), report
    assert (report["text"], report["tokens"]) == ("You said: hello there", [2, 4])


def test_the_cost_is_read_where_the_client_keeps_it(reports: Reports, client: tuple[str, str]) -> None:
    cost = reports["plain"].get("cost")
    assert (None if cost is None else Decimal(str(cost))) == (COST if client in KEEPS_COST else None)


@pytest.mark.parametrize("step", ["tool", "streamed_tool"])
def test_a_tool_is_called_and_its_result_is_taken_back(reports: Reports, step: str) -> None:
    report = reports[step]
    assert isinstance(report, dict), report
    assert report["calls"] == [["weather", {"city": "Bergen"}]]
    assert report["text"] == "The tool said: rain in Bergen"


def test_structured_output_is_parsed(reports: Reports) -> None:
    assert reports["structured"] == {"name": "Bergen", "people": 290000}


def test_an_unknown_model_is_raised_as_the_clients_own_error(
    reports: Reports, client: tuple[str, str]
) -> None:
    assert reports["refused"] == REFUSALS[client]
