"""Files of messages are downloaded from the agent's address of the service, for all forms of links."""

from __future__ import annotations

import asyncio

import pytest

from quartermaster.agents import File
from quartermaster.agents.received_files import NotReadable
from sdk.tests.scripted_service import Answer, ScriptedService

PUBLIC = "https://files.example"


def file_at(service: ScriptedService, url: str) -> File:
    """Return a file of a message to an agent that uses another address of the service than its links."""
    return File("a.txt", "text/plain", url=url, base_url=service.url, issuer=PUBLIC)


@pytest.mark.parametrize("reaches_public_address", [True, False])
def test_links_below_both_addresses_are_read_by_the_agents_own(
    service: ScriptedService, reaches_public_address: bool
) -> None:
    service.script = lambda _: Answer(body=b"content")
    address = service.url if reaches_public_address else PUBLIC
    file = file_at(service, f"{address}/files/1/content?grant=svg_1")
    assert [file.read(), asyncio.run(file.aread())] == [b"content", b"content"]
    assert [(at.path, at.query) for at in service.requests] == [("/files/1/content", {"grant": "svg_1"})] * 2
    # The grant in the link is the only credential; the deployment's own must not be added.
    assert not any("authorization" in at.headers for at in service.requests)


@pytest.mark.parametrize(
    "url",
    [
        f"{PUBLIC}.elsewhere.example/files/1/content",
        f"{PUBLIC}@elsewhere.example/files/1/content",
        f"{PUBLIC}/agents/1",
        "https://elsewhere.example/files/1/content",
        "",
    ],
)
def test_links_elsewhere_are_not_followed(service: ScriptedService, url: str) -> None:
    with pytest.raises(NotReadable):
        file_at(service, url).read()
    assert service.requests == []
