"""The official client, strict and plain, against a server that replies through the translator."""

from collections.abc import Iterator

import pytest
from anthropic import Anthropic
from openai import OpenAI

from shared.models.dialects import UPSTREAM_DIALECTS
from tests.shared.models.dialects.serving import Script, serve
from tests.shared.models.dialects.upstreams import Json, Reply, events_of


@pytest.fixture(params=UPSTREAM_DIALECTS, ids=["chat-upstream", "responses-upstream"])
def script(request: pytest.FixtureRequest) -> Script:
    """A script to fill, once for each dialect of the upstream."""
    return Script(upstream=request.param)


@pytest.fixture
def client(script: Script) -> Iterator[OpenAI]:
    """The official client with strict validation of every object and chunk."""
    with (
        serve(script) as base_url,
        OpenAI(
            api_key="svk_test", base_url=base_url, max_retries=0, _strict_response_validation=True
        ) as opened,
    ):
        yield opened


@pytest.fixture
def messages_client(script: Script) -> Iterator[Anthropic]:
    """Anthropic's client with strict validation of every message and event."""
    with (
        serve(script) as base_url,
        Anthropic(
            api_key="svk_test",
            base_url=base_url.removesuffix("/v1"),
            max_retries=0,
            _strict_response_validation=True,
        ) as opened,
    ):
        yield opened


def stream_of(script: Script, reply: Reply) -> list[Json]:
    """Return a reply's events in the dialect of the script's upstream."""
    return events_of(reply, script.upstream)
