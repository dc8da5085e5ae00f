"""One installation for all tests of the SDK against a running service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.processes.stack import Servers, Service, Stack

from sdk.tests.forms import Connect


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A running stack, and the credentials of its first deployment and owner."""

    stack: Stack
    front: Service
    credentials: dict[str, Any]

    @property
    def deployment(self) -> dict[str, str]:
        """Return the arguments of a client with the deployment's credentials."""
        return {
            "base_url": self.front.url,
            "client_id": self.credentials["deployment"]["clientId"],
            "client_secret": self.credentials["deployment"]["clientSecret"],
        }

    @property
    def owner(self) -> dict[str, str]:
        """Return the arguments of a client with the owner's API key."""
        return {"base_url": self.front.url, "api_key": self.credentials["ownerApiKey"]}


@pytest.fixture(scope="package")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Run a web process, and the workers and servers that files need."""
    servers = Servers(tmp_path_factory.mktemp("sdk-servers"))
    servers.start()
    try:
        stack = Stack(tmp_path_factory.mktemp("sdk"), servers)
        credentials = stack.set_up()
        front = stack.web()
        with stack.running(front, stack.worker("files")):
            yield Installation(stack=stack, front=front, credentials=credentials)
    finally:
        servers.stop()


@pytest.fixture
def client(installation: Installation, connect: Connect) -> Any:
    """The deployment's client, in both forms."""
    return connect(**installation.deployment)


@pytest.fixture
def owner(installation: Installation, connect: Connect) -> Any:
    """The owner's client, in both forms."""
    return connect(**installation.owner)
