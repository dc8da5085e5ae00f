"""Distributions that push, and everyone who may see or touch what was pushed."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from werkzeug.test import TestResponse

from shared.deliveries.sender import Sender
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.fairness.admission import Pool
from shared.identity.directory.deployments import CreatedDeployment
from shared.media.importing.fetch_job import Fetcher, fetch_due
from shared.media.importing.import_notifications import KIND
from shared.media.notifications.notification_channel import DistributionChannel
from tests.support.data.media_samples import PNG, Sample
from tests.support.web.web_process import Front


@dataclass(frozen=True, kw_only=True)
class Connector:
    """A distribution with its token and secret, as a client of the service."""

    front: Front
    id: UUID
    organization_id: UUID
    principal_id: UUID
    deployment: CreatedDeployment
    token: str
    webhook_secret: str

    @property
    def path(self) -> str:
        return f"/distributions/{self.id}/media"

    @property
    def authorization(self) -> str:
        return f"Bearer {self.token}"

    def push(self, body: object, authorization: str | None = None, **options: Any) -> TestResponse:
        """Push JSON, with the token by default."""
        return self._post(authorization or self.authorization, json=body, **options)

    def push_form(self, sample: Sample = PNG, **fields: object) -> TestResponse:
        """Push the bytes themselves, as a form."""
        return self._post(self.authorization, **form(sample, fields))

    def push_signed(self, body: object, secret: str | None = None, **changes: str) -> TestResponse:
        """Push JSON that is signed; `changes` replace headers."""
        raw = json.dumps(body).encode()
        headers = {**sign(raw, secret or self.webhook_secret), "Content-Type": "application/json"}
        headers |= {name.replace("_", "-"): value for name, value in changes.items()}
        return self._post(data=raw, headers=headers)

    def push_signed_form(self, sample: Sample = PNG) -> TestResponse:
        """Push the bytes themselves, as a form that is signed."""
        raw, content_type = encode(("messageId", uuid4().hex), ("attachmentId", "a-1"), ("file", sample))
        return self._post(data=raw, headers={**sign(raw, self.webhook_secret), "Content-Type": content_type})

    def _post(self, authorization: str | None = None, **options: Any) -> TestResponse:
        return self.front.post(self.path, authorization, **options)

    def read(self, import_id: str) -> dict[str, Any]:
        answer = self.front.get(f"{self.path}/{import_id}", self.authorization)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json or {}
        return found


def form(sample: Sample, fields: Mapping[str, object]) -> dict[str, Any]:
    """A request's form that brings a file, of a message of its own unless `fields` name it.

    Not as werkzeug's client writes one: now and then its boundary has more characters than RFC 2046 permits.
    """
    named = {"messageId": uuid4().hex, "attachmentId": "a-1", **fields}
    body, content_type = encode(*((name, str(value)) for name, value in named.items()), ("file", sample))
    return {"data": body, "content_type": content_type}


def encode(*parts: tuple[str, str | Sample]) -> tuple[bytes, str]:
    """Return a form's body and content type."""
    lines = b""
    for name, value in parts:
        disposition = f'Content-Disposition: form-data; name="{name}"'
        if isinstance(value, Sample):
            disposition += f'; filename="{value.file_name}"\r\nContent-Type: {value.media_type}'
        body = value.content if isinstance(value, Sample) else value.encode()
        lines += f"--boundary\r\n{disposition}\r\n\r\n".encode() + body + b"\r\n"
    return lines + b"--boundary--\r\n", "multipart/form-data; boundary=boundary"


def media(url: str = "https://media.example/a.png", **changes: Any) -> dict[str, Any]:
    """The JSON of one attachment, of a message of its own."""
    return {
        "messageId": uuid4().hex,
        "attachmentId": "a-1",
        "url": url,
        "fileName": PNG.file_name,
        "mediaType": PNG.media_type,
        **changes,
    }


def sign(body: bytes, secret: str, *, at: float | None = None, webhook_id: str = "msg_1") -> dict[str, str]:
    """Sign as a sender of Standard Webhooks does, written from its specification."""
    timestamp = str(int(time.time() if at is None else at))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.new(key, f"{webhook_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(mac).decode()}"
    return {"webhook-id": webhook_id, "webhook-timestamp": timestamp, "webhook-signature": signature}


def make_connector(
    front: Front, organization_id: UUID | None = None, principal_id: UUID | None = None
) -> Connector:
    """Create a distribution, by default with an organization and a receiving identity of its own."""
    identity = front.identity
    organization_id = organization_id or identity.organization().id
    deployment = identity.deployment(organization_id)
    principal_id = principal_id or identity.principal(organization_id).id
    created = identity.distribution(
        organization_id, principal_id=principal_id, deployment_id=deployment.deployment.id
    )
    return Connector(
        front=front,
        id=created.distribution.id,
        organization_id=organization_id,
        principal_id=principal_id,
        deployment=deployment,
        token=created.token.value,
        webhook_secret=created.webhook_secret.value,
    )


@pytest.fixture(scope="module")
def connector(front: Front) -> Connector:
    """A distribution of this module's."""
    return make_connector(front)


def sql(front: Front, statement: str, **values: object) -> list[Any]:
    with front.services.database.autocommit() as session:
        result = session.execute(text(statement), values)
        return list(result.all()) if result.returns_rows else []


def fetch(front: Front) -> None:
    """Fetch what is due, as the worker does."""
    services = front.services
    fetch_due(
        Fetcher(
            database=services.database,
            store=services.blobs,
            settings=services.settings,
            encryption=Encryption(services.settings),
            policy=EgressPolicy(allow_private=True, allow_http=True),
            pool=Pool("fetches", 16),
        )
    )


def deliver(front: Front) -> None:
    """Send due and waiting messages, as workers do over time."""
    sql(front, "UPDATE deliveries SET due_at = now() WHERE state IN ('Waiting', 'Sending') AND NOT is_held")
    channels = {KIND: DistributionChannel(Encryption(front.settings), lambda _, body: body)}
    sender = Sender(front.services.database, front.settings, channels)
    sender.send_due()
    sender.close()
