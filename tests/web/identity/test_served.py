"""OAuth and administration over a real server: gunicorn with our settings, and the client `requests`."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography.fernet import Fernet

from deploy.embedded.valkey import EmbeddedValkey
from deploy.process_types import web_command
from deploy.supervision.child_processes import Program, kill
from shared.db.database import Database
from shared.identity.bootstrap import Credentials, bootstrap
from tests.support.data.identity import make_settings
from tests.support.processes import process_forks
from tests.support.processes.stack import free_port, wait_until

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_SECONDS = 60
GRANT = {"grant_type": "client_credentials"}


class Served:
    """A running web process with an installation of its own."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        self.url = url
        self.credentials = credentials
        self.client = (str(credentials.client_id), credentials.client_secret)

    def ask(self, method: str, path: str, bearer: str | None = None, **options: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        return requests.request(method, self.url + path, headers=headers, timeout=TIMEOUT_SECONDS, **options)


@pytest.fixture(scope="module")
def served(
    database_url: str,
    database: Database,
    valkey_server: EmbeddedValkey,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    directory, port, key = tmp_path_factory.mktemp("front"), free_port(), Fernet.generate_key().decode()
    url = f"http://127.0.0.1:{port}"
    credentials = bootstrap(database, make_settings(base_url=url, encryption_keys=(key,)))
    assert credentials is not None
    environment = {
        "DATABASE_URL": database_url,
        "REDIS_URL": valkey_server.url,
        "BLOB_STORE": directory.as_uri(),
        "BASE_URL": url,
        "ENCRYPTION_KEYS": key,
        "PORT": str(port),
        "WEB_PROCESSES": "2",
        "WEB_THREADS": "4",
    }
    program = Program(
        name="web",
        command=tuple(web_command()),
        environment={**os.environ, **environment},
        directory=ROOT,
        log=directory / "web.log",
    )
    process = process_forks.start(program)
    try:
        wait_until(lambda: is_answering(url), f"the front answers; see {program.log}")
        yield Served(url, credentials)
    finally:
        kill(process)


def is_answering(url: str) -> bool:
    """Return whether a worker process responds: their parent listens long before."""
    with contextlib.suppress(requests.RequestException):
        return requests.get(f"{url}/healthz", timeout=TIMEOUT_SECONDS).ok
    return False


def test_a_deployment_finds_the_token_endpoint_and_uses_its_token(served: Served) -> None:
    metadata = served.ask("GET", "/.well-known/oauth-authorization-server").json()
    assert metadata["token_endpoint"] == f"{served.url}/oauth/token"
    answer = requests.post(
        metadata["token_endpoint"], data=GRANT, auth=served.client, timeout=TIMEOUT_SECONDS
    )
    token = answer.json()["access_token"]
    assert served.ask("GET", "/files", token).json() == {"files": [], "nextCursor": None}
    for _ in range(4):
        again = requests.post(
            f"{served.url}/oauth/introspect",
            data={"token": token},
            auth=served.client,
            timeout=TIMEOUT_SECONDS,
        )
        assert again.json()["active"] is True, "whichever process answers"
    revoked = requests.post(
        metadata["revocation_endpoint"], data={"token": token}, auth=served.client, timeout=TIMEOUT_SECONDS
    )
    assert (revoked.status_code, revoked.content) == (200, b"")


def test_a_distribution_routes_a_request(served: Served) -> None:
    minted = served.ask(
        "POST", "/oauth/attributions", served.credentials.distribution_token, json={"messageId": "m-1"}
    )
    assert minted.status_code == 201
    token = served.ask(
        "POST",
        "/oauth/token",
        data={**GRANT, "client_id": served.client[0], "client_secret": served.client[1]},
    ).json()["access_token"]
    answer = requests.get(
        f"{served.url}/files",
        headers={
            "Authorization": f"Bearer {token}",
            "Service-Usage-Attribution": minted.json()["attribution"],
        },
        timeout=TIMEOUT_SECONDS,
    )
    assert answer.status_code == 200


def test_refusals_keep_the_connection_usable_when_the_body_was_read(served: Served) -> None:
    with requests.Session() as session:
        for _ in range(3):
            refused = session.post(
                f"{served.url}/oauth/token", data=GRANT, auth=("nobody", "nothing"), timeout=TIMEOUT_SECONDS
            )
            assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client")
            assert refused.headers["WWW-Authenticate"].startswith("Basic ")
            assert refused.headers.get("Connection") != "close"


def test_a_body_that_nobody_reads_closes_the_connection(served: Served) -> None:
    refused = served.ask("POST", "/oauth/token", data=b"x" * 100_000)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_request")
    assert refused.headers["Connection"] == "close"


def test_an_owner_administers(served: Served) -> None:
    key = served.credentials.owner_api_key
    path = f"/admin/organizations/{served.credentials.organization_id}/identities"
    made = served.ask("POST", path, key, json={"name": "Mailbox"})
    assert made.status_code == 201
    read = requests.get(
        made.headers["Location"], headers={"Authorization": f"Bearer {key}"}, timeout=TIMEOUT_SECONDS
    )
    assert read.json() == made.json()
    gone = served.ask("DELETE", path, key)
    assert (gone.status_code, gone.headers["Content-Type"]) == (405, "application/problem+json")
