"""One running service for OpenAI's clients: a web process, the workers and the scheduler, over real servers."""

from collections.abc import Iterator

import openai
import pytest

from tests.support.models.model_service import ModelService, running_model_service

# Clients and service share one machine. Under load, a client may send its request late.
PATIENT = {"WEB_HEAD_SECONDS": "60", "WEB_SMALL_BODY_SECONDS": "60"}


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    """Run everything that `make up` runs for models."""
    directory = tmp_path_factory.mktemp("clients")
    workers = ("models", "background", "ledger")
    with running_model_service(directory, *workers, has_beat=True, **PATIENT) as running:
        yield running


@pytest.fixture
def client(service: ModelService) -> Iterator[openai.OpenAI]:
    """Yield the owner's client, created as its documentation shows."""
    with connect(service) as client:
        yield client


@pytest.fixture(params=["scripted/echo", "scripted/echo-responses"])
def model(request: pytest.FixtureRequest) -> str:
    """Return a model behind each of the two upstream dialects."""
    name: str = request.param
    return name


def connect(service: ModelService, api_key: str | None = None, **options: object) -> openai.OpenAI:
    """Create a client with its two automatic retries unchanged."""
    return openai.OpenAI(
        base_url=f"{service.front.url}/v1",
        api_key=api_key or service.api_key,
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture
def strict_client(service: ModelService) -> Iterator[openai.OpenAI]:
    """Yield a client that validates every response against OpenAI's own schema."""
    with connect(service, _strict_response_validation=True) as client:
        yield client
