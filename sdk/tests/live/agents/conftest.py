"""A real web process for agents' callbacks, and the service's requests to an agent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deploy.embedded.ports import find_free_port
from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.remote.request_tokens import mint_request_token
from shared.identity.directory.deployments import CreatedDeployment
from shared.identity.directory.distributions import CreatedDistribution
from shared.identity.directory.identities import Identity
from tests.support.servers.databases import database_url, migrated_template
from tests.support.servers.run_servers import postgres_server, valkey_server
from tests.support.web.web_process import Front, open_front
from tests.web.files.conftest import attribution_for
from werkzeug.serving import make_server

__all__ = ["database_url", "migrated_template", "postgres_server", "valkey_server"]


@dataclass(frozen=True)
class Service:
    """A running service with one deployment, and a distribution that sends it messages."""

    front: Front
    deployment: CreatedDeployment
    principal: Identity
    distribution: CreatedDistribution

    @property
    def credentials(self) -> dict[str, str]:
        """The credentials that the agent's environment would have."""
        return {
            "base_url": self.front.settings.base_url,
            "client_id": str(self.deployment.deployment.client_id),
            "client_secret": self.deployment.credential.secret.value,
        }

    @property
    def authorization(self) -> dict[str, str]:
        """Return the header with the request token of one request."""
        return self._authorization(self.deployment)

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the service's request with a message."""
        return self.headers_for(self.deployment, self.front.identity.attribution(self.distribution))

    def headers_for(self, deployment: CreatedDeployment, attribution: str | None = None) -> dict[str, str]:
        """Return these headers for a message to a deployment, by default for work of its own Daemon Identity."""
        daemon, payer = deployment.deployment.daemon_identity_id, deployment.deployment.organization_id
        value = attribution or attribution_for(self.front, deployment, daemon, payer_id=payer)
        return {
            **self._authorization(deployment),
            "Service-Usage-Attribution": value,
            "A2A-Version": "1.0",
        }

    def _authorization(self, deployment: CreatedDeployment) -> dict[str, str]:
        keys = self.front.services.signing_keys
        token = mint_request_token(keys, self.front.settings, deployment.deployment.id)
        return {"Authorization": f"Bearer {token}"}

    def file(self, file_id: str) -> Any:
        """Return a file's metadata with the deployment's credentials."""
        authorization = self.front.identity.authorization(self.deployment)
        headers = {"Service-Usage-Attribution": self.front.identity.attribution(self.distribution)}
        return self.front.get(f"/files/{file_id}", authorization, headers=headers).json


@pytest.fixture(scope="module")
def service(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """Run a web process for this module."""
    port = find_free_port()
    directory: Path = tmp_path_factory.mktemp("blobs")
    with open_front(database_url, valkey_server.url, directory, base_url=f"http://127.0.0.1:{port}") as front:
        server = make_server("127.0.0.1", port, front.app, threaded=True)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield _set_up(front)
        finally:
            server.shutdown()
            serving.join()
            server.server_close()


def _set_up(front: Front) -> Service:
    organization = front.identity.organization()
    deployment = front.identity.deployment(organization.id)
    principal = front.identity.principal(organization.id)
    distribution = front.identity.distribution(
        organization.id, principal_id=principal.id, deployment_id=deployment.deployment.id
    )
    return Service(front, deployment, principal, distribution)
