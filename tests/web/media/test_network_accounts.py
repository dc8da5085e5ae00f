"""One app of a network serves many workspaces and numbers: each ends at the identity of its own distribution.

What is pushed is signed by the networks' published clients, where there are any (`tests/support/networks`).
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from werkzeug.test import TestResponse

from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.distributions import update_distribution
from tests.support import networks
from tests.support.data.media_samples import PDF, PNG, Sample
from tests.support.web.web_process import LOCAL_EGRESS, Front
from tests.web.media.conftest import fetch, sql
from tests.web.media.webhook_senders import Line, open_line


@pytest.fixture(scope="module")
def front_settings() -> Mapping[str, object]:
    return LOCAL_EGRESS


def route(app: Line, account: str, target: Line, authorization: str | None = None) -> TestResponse:
    path = f"{app.settings_path}/accounts/{account}"
    body = {"targetDistributionId": str(target.distribution_id)}
    return app.front.put(path, authorization or app.administrator.authorization, json=body)


def imported(*lines: Line) -> list[list[tuple[str, Any]]]:
    return [[(one.attachment_id, one.organization_id) for one in line.imports()] for line in lines]


def received(front: Front, *lines: Line) -> list[list[bytes]]:
    """Fetch due imports; return the digests of the files that each line's receiving identity has."""
    fetch(front)
    statement = (
        "SELECT content_sha256 FROM files JOIN file_versions ON file_versions.id = current_version_id"
        " JOIN distributions ON distributions.principal_identity_id = files.owner_id"
        " WHERE distributions.id = :id AND files.organization_id = distributions.organization_id"
    )
    return [[bytes(row[0]) for row in sql(front, statement, id=line.distribution_id)] for line in lines]


def digests(*samples: Sample) -> list[list[bytes]]:
    return [[hashlib.sha256(sample.content).digest()] for sample in samples]


def slack_message(stand_in: networks.SlackStandIn, file_id: str, **more: object) -> bytes:
    return json.dumps(stand_in.event(file_id, message=str(uuid4().int % 100_000)) | more).encode()


def test_two_workspaces_of_one_app_end_at_their_own_identities(front: Front) -> None:
    stand_in = networks.SlackStandIn()
    app, first, second = (open_line(front, stand_in) for _ in range(3))
    for account, line in (("T1", first), ("T2", second)):
        assert route(app, account, line).status_code == 200
    file_id = stand_in.keep(PNG)
    assert app.send(slack_message(stand_in, file_id, team_id="T1")).status_code == 200
    # A message in a channel that is shared with another workspace: the app is installed in this one.
    shared = slack_message(stand_in, file_id, team_id="T1", authorizations=[{"team_id": "T2"}])
    assert app.send(shared).status_code == 200
    assert app.send(slack_message(stand_in, file_id, team_id="T3")).status_code == 200
    assert imported(app, first, second) == [
        [(file_id, app.organization_id)],
        [(file_id, first.organization_id)],
        [(file_id, second.organization_id)],
    ]
    removed = front.delete(f"{app.settings_path}/accounts/T1", app.administrator.authorization)
    assert removed.status_code == 204
    assert app.send(slack_message(stand_in, file_id, team_id="T1")).status_code == 200
    assert [len(line.imports()) for line in (app, first)] == [2, 1]


def test_files_of_each_workspace_are_fetched_with_its_own_token(
    front: Front,
) -> None:
    with networks.SlackStandIn() as stand_in:
        app, first, second = (open_line(front, stand_in) for _ in range(3))
        expected = set()
        for account, line, sample in (("T1", first, PNG), ("T2", second, PDF)):
            token, file_id = f"xoxb-{account}-" + "not-a-token-" * 4, stand_in.keep(sample)
            stand_in.tokens.add(token)
            expected.add((file_id, f"Bearer {token}"))
            assert line.put_settings({**stand_in.settings, "botToken": token}).status_code == 200
            assert route(app, account, line).status_code == 200
            assert app.send(slack_message(stand_in, file_id, team_id=account)).status_code == 200
        assert received(front, app, first, second) == [[], *digests(PNG, PDF)]
        asked = [asked for asked in stand_in.asked if asked.path == "/api/files.info"]
        assert {(one.query["file"], one.headers["authorization"]) for one in asked} == expected


def test_two_numbers_files_are_stored_for_their_own_identities(front: Front) -> None:
    numbers = {"+15550000001": PNG, "+15550000002": PDF}
    with networks.TwilioStandIn() as stand_in:
        app, *lines = (open_line(front, stand_in) for _ in range(3))
        for (number, sample), line in zip(numbers.items(), lines, strict=True):
            assert route(app, number, line).status_code == 200
            parameters = stand_in.parameters(stand_in.keep(sample), message=str(uuid4().int % 100_000))
            body = urlencode({**parameters, "To": number}).encode()
            assert app.send(body).status_code == 200
        assert received(front, app, *lines) == [[], *digests(PNG, PDF)]


def test_two_numbers_in_one_webhook_end_at_their_own_identities(front: Front) -> None:
    stand_in = networks.WhatsAppStandIn()
    app, other = open_line(front, stand_in), open_line(front, stand_in)
    assert route(app, "2222", other).status_code == 200
    files = [stand_in.keep(sample) for sample in (PNG, PDF)]
    document = json.loads(stand_in.message(*files, message=str(uuid4().int % 100_000)))
    changes = [change for entry in document["entry"] for change in entry["changes"]]
    changes[0]["value"]["metadata"]["phone_number_id"] = "1111"
    changes[1]["value"]["metadata"]["phone_number_id"] = "2222"
    for _ in range(2):
        assert app.send(json.dumps(document).encode()).status_code == 200
    assert imported(app, other) == [[(files[0], app.organization_id)], [(files[1], other.organization_id)]]


def test_a_number_of_twilio_ends_at_its_own_identity(front: Front) -> None:
    stand_in = networks.TwilioStandIn()
    app, other = open_line(front, stand_in), open_line(front, stand_in)
    body = stand_in.message(stand_in.keep(PNG), message="7")
    number = dict(pair.split("=") for pair in body.decode().split("&"))["To"].replace("%2B", "+")
    assert route(app, number, other).status_code == 200
    assert app.send(body).status_code == 200
    assert [len(line.imports()) for line in (app, other)] == [0, 1]


def test_an_account_is_routed_only_between_distributions_that_the_caller_manages(front: Front) -> None:
    stand_in = networks.SlackStandIn()
    app, other = open_line(front, stand_in), open_line(front, stand_in)
    owner = front.identity.person(app.organization_id, Role.WORKSPACE_OWNER).authorization
    assert route(app, "T1", other, owner).status_code == 404
    assert route(app, "T1", app, owner).status_code == 200
    assert route(app, "x" * 128, app, owner).status_code == 422
    with front.services.database.transaction() as session:
        update_distribution(
            session, actor=OPERATOR, distribution_id=other.distribution_id, networks=["twilio"]
        )
    refused = route(app, "T1", other)
    assert (refused.status_code, refused.get_json()["code"]) == (409, "network_not_routed")
    listed = front.get(f"{app.settings_path}/accounts", owner).get_json()["accounts"]
    assert [(one["account"], one["targetDistributionId"]) for one in listed] == [
        ("T1", str(app.distribution_id))
    ]


def test_files_of_a_forwarded_message_are_imported_with_it(front: Front) -> None:
    stand_in = networks.SlackStandIn()
    line = open_line(front, stand_in)
    own, forwarded = stand_in.keep(PNG), stand_in.keep(PDF)
    event = stand_in.event(own)
    event["event"]["attachments"] = [
        {"is_share": True, "ts": "1720000000.000001", "files": [stand_in.file(forwarded), stand_in.file(own)]}
    ]
    assert line.send(json.dumps(event).encode()).status_code == 200
    assert sorted(one.attachment_id for one in line.imports()) == sorted([own, forwarded])
