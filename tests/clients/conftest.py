"""One running service for all of OpenAI's clients: a front, both workers and the schedule, over real servers."""

from collections.abc import Iterator

import openai
import pytest

from tests.support.models.model_service import ModelService, running_model_service

# The clients share their machine with what they ask: with many calls at once, or other work, they may send late.
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
    """The owner's client, as its own documentation makes it."""
    with connect(service) as client:
        yield client


@pytest.fixture(params=["scripted/echo", "scripted/echo-responses"])
def model(request: pytest.FixtureRequest) -> str:
    """A model behind each of the two dialects that upstreams speak."""
    name: str = request.param
    return name


def connect(service: ModelService, api_key: str | None = None, **options: object) -> openai.OpenAI:
    """Make a client; its two automatic retries stay as they are."""
    return openai.OpenAI(
        base_url=f"{service.front.url}/v1",
        api_key=api_key or service.api_key,
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture
def strict_client(service: ModelService) -> Iterator[openai.OpenAI]:
    """A client that validates whatever it is given against OpenAI's own schema."""
    with connect(service, _strict_response_validation=True) as client:
        yield client
