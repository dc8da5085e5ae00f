"""The networks' own published clients are the other side: what they sign is taken, and what they would ask is there.

slack_sdk and twilio sign all that the stand-ins send (`tests/support/networks`), so that every test of webhooks has
them on the other side; here their API clients, PyNaCl, svix and standardwebhooks are.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
import standardwebhooks
import svix.webhooks
from nacl.signing import SigningKey
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from twilio.rest import Client

from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.deployments import disable_deployment, enable_deployment
from shared.media.importing.paused_imports import resume_paused
from tests.shared.egress.servers import Server, content
from tests.support import networks
from tests.support.data.media_samples import PDF, PNG
from tests.support.networks import slack, twilio
from tests.support.web.web_process import LOCAL_EGRESS, Front
from tests.web.media.conftest import deliver, fetch, make_connector, media, sql
from tests.web.media.webhook_senders import Line, open_line

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def front_settings() -> Mapping[str, object]:
    return LOCAL_EGRESS


def message(line: Line) -> bytes:
    return line.stand_in.message(line.stand_in.keep(PNG), message=str(uuid4().int % 100_000))


def test_what_pynacl_signs_is_taken_and_what_another_key_signs_is_not(front: Front) -> None:
    """Discord's documentation verifies with PyNaCl."""
    key, other = SigningKey.generate(), SigningKey.generate()
    line = open_line(front, networks.DiscordStandIn())
    settings = {**line.stand_in.settings, "publicKey": key.verify_key.encode().hex()}
    assert line.put_settings(settings, overlapSeconds=0).status_code == 200
    body = message(line)
    at = str(int(datetime.now(UTC).timestamp()))
    statuses = [
        line.front.post(
            line.path,
            data=body,
            headers=JSON
            | {
                "X-Signature-Ed25519": signer.sign(at.encode() + body).signature.hex(),
                "X-Signature-Timestamp": at,
            },
        ).status_code
        for signer in (other, key)
    ]
    assert statuses == [401, 200]
    assert len(line.imports()) == 1


@pytest.mark.parametrize("prefix", ["webhook-", "svix-"])
def test_what_the_clients_of_standard_webhooks_sign_is_taken_under_either_name(
    front: Front, prefix: str
) -> None:
    connector = make_connector(front)
    client: Any = {"webhook-": standardwebhooks.Webhook, "svix-": svix.webhooks.Webhook}[prefix]
    now, body = datetime.now(UTC), json.dumps(media())
    headers = {
        f"{prefix}id": "msg_1",
        f"{prefix}timestamp": str(int(now.timestamp())),
        f"{prefix}signature": client(connector.webhook_secret).sign("msg_1", now, body),
    }
    for sent, status in ((body, 202), (body.replace("a-1", "a-2"), 401)):
        answer = front.post(connector.path, data=sent.encode(), headers=headers | JSON)
        assert answer.status_code == status, answer.text


def test_what_is_told_is_verified_by_the_clients_of_standard_webhooks(front: Front, server: Server) -> None:
    connector = make_connector(front)
    server.on("/hook", content(b""))
    path = f"/admin/distributions/{connector.id}/notification-endpoint"
    operator = front.identity.operator().authorization
    assert front.put(path, operator, json={"url": server.url("/hook")}).status_code == 200
    assert connector.push_form(PNG).status_code == 202
    deliver(front)
    (asked,) = server.asked
    for client in (svix.webhooks.Webhook, standardwebhooks.Webhook):
        client(connector.webhook_secret).verify(asked.body, dict(asked.headers))
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            client(connector.webhook_secret).verify(asked.body + b" ", dict(asked.headers))


@pytest.mark.parametrize("make", [networks.SlackStandIn, networks.TwilioStandIn], ids=lambda make: make.name)
def test_a_disabled_deployments_webhooks_are_acknowledged_and_stored_later(
    front: Front, make: type[networks.StandIn]
) -> None:
    with make() as stand_in:
        line = open_line(front, stand_in)
        ((deployment_id,),) = sql(
            front, "SELECT deployment_id FROM distributions WHERE id = :id", id=line.distribution_id
        )
        with front.services.database.transaction() as session:
            disable_deployment(session, actor=OPERATOR, deployment_id=deployment_id)
        assert line.send(message(line)).status_code == 200
        fetch(front)
        assert states(line) == [("Held", "target_disabled")]
        with front.services.database.transaction() as session:
            enable_deployment(session, actor=OPERATOR, deployment_id=deployment_id)
        assert resume_paused(front.services.database) == 1
        fetch(front)
        assert states(line) == [("Stored", None)]


def states(line: Line) -> list[tuple[str, str | None]]:
    return [(one.state, one.code) for one in line.imports()]


def test_slacks_api_client_reads_what_the_import_reads(front: Front) -> None:
    """The other side is as Slack's own client expects it, also in what it refuses."""
    with networks.SlackStandIn() as stand_in:
        line = open_line(front, stand_in)
        file_id = stand_in.keep(PDF)
        client = WebClient(slack.BOT_TOKEN, base_url=f"{stand_in.url}/api/")
        file: Mapping[str, object] = client.files_info(file=file_id)["file"]
        assert (file["id"], file["size"], file["mimetype"]) == (file_id, len(PDF.content), PDF.media_type)
        stand_in.tokens.clear()
        with pytest.raises(SlackApiError, match="invalid_auth"):
            client.files_info(file=file_id)
        assert line.send(stand_in.message(file_id)).status_code == 200
        fetch(front)
        assert states(line) == [("Held", "network_credentials_refused")]
        stand_in.tokens.add(slack.BOT_TOKEN)
        assert line.put_settings().status_code == 200
        fetch(front)
        assert states(line) == [("Stored", None)]


def test_twilios_api_client_reads_what_the_import_reads(front: Front) -> None:
    """A medium that is not there yet is 404 to Twilio's own client too; later both find it."""
    with networks.TwilioStandIn() as stand_in:
        line = open_line(front, stand_in)
        assert line.send(message(line)).status_code == 200
        url = line.imports()[0].location["url"]
        client = Client(twilio.ACCOUNT_SID, twilio.AUTH_TOKEN)
        kept = dict(stand_in.kept)
        stand_in.kept.clear()
        assert client.request("GET", url).status_code == 404
        fetch(front)
        assert states(line) == [("Queued", "media_gone")]
        stand_in.kept.update(kept)
        assert client.request("GET", url).status_code == 307
        sql(front, "UPDATE media_imports SET due_at = now() WHERE state = 'Queued'")
        fetch(front)
        assert states(line) == [("Stored", None)]
