"""Two organizations on one installation: each has a person, a deployment, an agent and a distribution."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import requests

from shared.credits.ledger import top_up
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.deployments import CreatedDeployment
from shared.identity.directory.distributions import CreatedDistribution
from tests.chaos.installation import Installation
from tests.support.agents.rest_clients import Client
from tests.support.models.upstream_scripts import DIRECTIVE

PLENTY = 10**13
SCRIPT = """
rules:
  - match: {text: ping}
    steps: [{message: pong}]
  - match: {regex: "^work"}
    steps: [{status: Working}, {complete: Done}]
  - match: {regex: "^hang"}
    steps: [{status: Waiting}, {hang: true}]
"""
DISTRIBUTIONS = 3


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """An organization with everything that sends requests on its behalf."""

    organization_id: UUID
    front: str
    owner: Client
    agent: Client
    deployment: CreatedDeployment
    distributions: Sequence[CreatedDistribution]

    def bearer(self, token: str, method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
        """Return the bytes of a request; its body may be shorter than its headers announce."""
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}", *headers]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def json(self, path: str, document: object, *headers: str) -> bytes:
        """Return the bytes of the owner's request with a JSON body."""
        body = json.dumps(document).encode()
        length = f"Content-Length: {len(body)}"
        return self.bearer(
            self.owner.token, "POST", path, "Content-Type: application/json", length, *headers, body=body
        )

    def post(self, path: str, document: object, **headers: str) -> Any:
        """Send a request as the owner; raise unless it succeeds."""
        answer = self.owner.request("POST", path, json=document, headers=headers)
        return succeeded(answer).json()

    def chat(self, model: str, *, stream: bool = False, **script: Any) -> dict[str, Any]:
        """Return the body of a chat call whose upstream follows this script."""
        content = f"Hello\n{DIRECTIVE}{json.dumps(script)}" if script else "Hello"
        return {"model": model, "stream": stream, "messages": [{"role": "user", "content": content}]}

    @property
    def agent_path(self) -> str:
        """Return the base path of its agent."""
        return f"/agents/{self.deployment.deployment.id}"

    def message(self, text: str, **configuration: Any) -> dict[str, Any]:
        """Return a message to its agent."""
        part = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]}
        return {"message": part, "configuration": configuration}

    def push(self, url: str, distribution: int = 0) -> dict[str, Any]:
        """Push an attachment by URL, and return the response."""
        body = {"messageId": uuid4().hex, "attachmentId": "1", "url": url}
        body |= {"fileName": "cat.txt", "mediaType": "text/plain"}
        pushed: dict[str, Any] = self._ask_media("POST", distribution, json=body).json()
        return pushed

    def read_import(self, import_id: str) -> Mapping[str, Any]:
        """Read an import as the first distribution."""
        found: Mapping[str, Any] = self._ask_media("GET", 0, f"/{import_id}").json()
        return found

    def _ask_media(self, method: str, distribution: int, path: str = "", **more: Any) -> requests.Response:
        made = self.distributions[distribution % len(self.distributions)]
        url = f"{self.front}/distributions/{made.distribution.id}/media{path}"
        headers = {"Authorization": f"Bearer {made.token.value}", "Connection": "close"}
        return succeeded(
            requests.request(method, url, headers=headers, timeout=self.owner.timeout_seconds, **more)
        )


def make_tenant(installation: Installation, front: str, name: str, *, max_wait_seconds: float) -> Tenant:
    """Create an organization with credits, and its resources."""
    identity = installation.identity
    organization = identity.organization(name)
    with identity.database.transaction() as session:
        top_up(session, organization_id=organization.id, amount=PLENTY, reference=name, actor=OPERATOR)
    person = identity.person(organization.id, Role.WORKSPACE_OWNER, bound=True)
    deployment = identity.deployment(organization.id, name)
    principal = identity.principal(organization.id, name)
    distributions = [
        identity.distribution(
            organization.id, principal_id=principal.id, deployment_id=deployment.deployment.id
        )
        for _ in range(DISTRIBUTIONS)
    ]
    return Tenant(
        organization_id=organization.id,
        front=front,
        owner=_client(front, person.api_key, max_wait_seconds),
        agent=_client(front, identity.access_token(deployment), max_wait_seconds),
        deployment=deployment,
        distributions=distributions,
    )


def _client(front: str, token: str, max_wait_seconds: float) -> Client:
    client = Client(front, token)
    client.timeout_seconds = max_wait_seconds
    return client


def give_agent(tenant: Tenant) -> None:
    """Have a script reply for the tenant's deployment; call this once a web process responds."""
    behavior = {"name": "script", "description": "Answers.", "kind": "script", "script": SCRIPT}
    path = f"/admin/deployments/{tenant.deployment.deployment.id}/behaviors"
    succeeded(tenant.owner.request("POST", path, json=behavior))


def succeeded(answer: requests.Response) -> requests.Response:
    """Return the response; raise with its body unless it is a success."""
    if not answer.ok:
        raise AssertionError(
            f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:200]}"
        )
    return answer
