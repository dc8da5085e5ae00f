"""The client's address: accepted from trusted proxies only, and used for counting, logs and audit."""

import json
import time
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import TestResponse

from deploy.embedded.valkey import EmbeddedValkey
from shared.identity.access.roles import Role
from tests.support.web.web_process import Front, open_front
from tests.web.framework.test_requests_around import lines as lines  # noqa: PLC0414 (a fixture)
from web.http.client_address import apply_forwarded_for, client_address

PROXIES = tuple(map(ip_network, ("10.0.0.0/8", "2001:db8:ffff::/48", "127.0.0.1/32")))


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),
        ("10.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "203.0.113.9, 198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "203.0.113.9, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("10.0.0.1", "198.51.100.7, nonsense", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.7, nonsense, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", " 2001:DB8::0:1 ", "2001:db8::1"),
        ("10.0.0.1", "::ffff:198.51.100.7", "198.51.100.7"),
        ("::ffff:10.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("2001:db8:ffff::1", "198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "198.51.100.7:1234", "10.0.0.1"),
        ("", "198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "203.0.113.9," + "10.0.0.2," * 99, "10.0.0.1"),
    ],
)
def test_forwarded_for_is_read_from_the_right_while_proxies_are_trusted(
    peer: str, forwarded: str, found: str
) -> None:
    environ = {"REMOTE_ADDR": peer, "HTTP_X_FORWARDED_FOR": forwarded}
    apply_forwarded_for(environ, PROXIES)
    assert client_address(environ) == found


@pytest.mark.parametrize("peer", ["192.0.2.1", ""])
def test_forwarded_for_is_ignored_without_trusted_proxies(peer: str) -> None:
    environ = {"REMOTE_ADDR": peer, "HTTP_X_FORWARDED_FOR": "198.51.100.7"}
    apply_forwarded_for(environ, ())
    assert client_address(environ) == peer


def guess(front: Front, address: str, token: str = "wrong") -> TestResponse:
    return front.get("/files", f"Bearer {token}", headers={"X-Forwarded-For": address})


@pytest.fixture
def strict(database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path) -> Any:
    """Open fronts that allow two failed attempts a minute."""
    return lambda **settings: open_front(
        database_url, valkey_server.url, tmp_path, failed_logins_per_minute=2, **settings
    )


def test_guesses_are_counted_for_each_client_behind_a_trusted_proxy(strict: Any) -> None:
    with strict(trusted_proxies="127.0.0.1") as front:
        statuses = [guess(front, "198.51.100.7").status_code for _ in range(4)]
        assert (statuses[0], statuses[-1]) == (401, 429)
        assert guess(front, "198.51.100.8").status_code == 401
        assert guess(front, "2001:db8::1").status_code == 401


def test_client_cannot_evade_the_limit_with_forged_addresses(strict: Any) -> None:
    with strict() as front:
        statuses = [guess(front, f"203.0.113.{n}").status_code for n in range(4)]
        assert statuses[-1] == 429


def test_guesses_from_one_network_of_ipv6_are_one_clients(strict: Any) -> None:
    with strict(trusted_proxies="127.0.0.0/8") as front:
        statuses = [guess(front, f"2001:db8:5:5::{n}").status_code for n in range(4)]
        assert statuses[-1] == 429


def test_expired_token_is_never_counted_as_a_guess(strict: Any) -> None:
    with strict(access_token_seconds=1) as front:
        deployment = front.identity.deployment(front.identity.organization().id)
        authorization = front.identity.authorization(deployment)
        time.sleep(2.1)
        for _ in range(5):
            answer = front.get("/files", authorization)
            assert (answer.status_code, answer.json and answer.json["code"]) == (401, "invalid_token")
            assert "invalid_token" in answer.headers["WWW-Authenticate"]


def test_log_line_names_the_caller(front: Front, lines: list[dict[str, Any]]) -> None:
    organization = front.identity.organization()
    deployment = front.identity.deployment(organization.id)
    front.get("/files", front.identity.authorization(deployment))
    line = lines[-1]
    assert line["event"] == "request.answered"
    assert line["client_address"] == "127.0.0.1"
    assert line["actor"].startswith("DaemonIdentity:")
    assert line["organization_id"] == str(organization.id)
    assert line["credential_id"]
    front.get("/problems/file_not_found")
    assert lines[-1]["client_address"] == "127.0.0.1"
    assert "actor" not in lines[-1], "nothing is left of the request before"


def test_audit_entry_contains_credential_and_address(front: Front) -> None:
    organization = front.identity.organization()
    owner = front.identity.person(organization.id, Role.WORKSPACE_OWNER)
    front.post(
        f"/admin/organizations/{organization.id}/deployments", owner.authorization, json={"name": "traced"}
    )
    answer = front.get(f"/admin/organizations/{organization.id}/audit-events", owner.authorization)
    assert answer.status_code == 200, answer.text
    event = json.loads(answer.text)["auditEvents"][0]
    assert event["clientAddress"] == "127.0.0.1"
    assert event["credentialId"]
