"""Push notification configurations: the URL to which updates of a task are posted, and the credentials for it.

Both are stored encrypted. A URL may be secret, so only its origin is stored in clear. The URL is checked here as text,
and again at each connection. The client's token is returned to readers of the configuration, but credentials are never
returned. The token signs the notifications (Standard Webhooks). A `whsec_…` token is only used as the signing secret
and is not sent.
"""

import base64
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy import Row, delete, func, select
from sqlalchemy.dialects.postgresql import insert

from shared.a2a.errors import InvalidParams, PushNotificationNotSupported, TaskNotFound
from shared.a2a.identifiers import check_identifier, is_identifier
from shared.a2a.tables import task_push_configurations, tasks
from shared.a2a.types import AuthenticationInfo, TaskPushNotificationConfig
from shared.db.database import Session
from shared.deliveries.outbox import give_up, readdress
from shared.deliveries.sealed_addresses import seal_address
from shared.egress.errors import EgressError
from shared.egress.policy import EgressPolicy
from shared.egress.urls import check_headers, parse_url
from shared.encryption import Encryption
from shared.errors import FieldError
from shared.identity.secrets import WEBHOOK_SECRET_PREFIX
from shared.ids import new_id

CONFIGURATIONS_LIMIT = 20
TOKEN_HEADER = "X-A2A-Notification-Token"  # noqa: S105 (the header's name)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9._~+-]{0,63}")
_table = task_push_configurations.c


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfigurations:
    """The configurations of all tasks. Callers of this class must check the access to the task before."""

    encryption: Encryption
    policy: EgressPolicy
    is_supported: bool = True

    def require_support(self) -> None:
        """Raise PushNotificationNotSupported if this installation sends no push notifications."""
        if not self.is_supported:
            raise PushNotificationNotSupported

    def create(
        self, session: Session, task_id: UUID, wanted: TaskPushNotificationConfig
    ) -> TaskPushNotificationConfig:
        """Create a configuration, or replace the configuration with the same id and redirect its pending deliveries.

        Raises InvalidParams for an address that is not allowed, and PushNotificationNotSupported.
        """
        self.require_support()
        config_id = check_identifier("id", wanted.id) if wanted.id else str(task_id)
        headers, secret = _headers(wanted), _secret(wanted.token)
        self._check(wanted.url, headers)
        _lock_task(session, task_id)
        # Do not count the configuration with this id, because replacing a configuration adds none.
        count = select(func.count()).where(_table.task_id == task_id, _table.id != config_id)
        if session.execute(count).scalar_one() >= CONFIGURATIONS_LIMIT:
            raise _wrong("id", f"would exceed the limit of {CONFIGURATIONS_LIMIT} configurations for a task")
        sealed = seal_address(self.encryption, url=wanted.url, headers=headers, secret=secret)
        values = {
            "url": origin_of(wanted.url),
            "scheme": wanted.authentication.scheme if wanted.authentication else None,
            "address_encrypted": sealed,
        }
        new_destination_id = new_id()
        kept = insert(task_push_configurations).values(
            task_id=task_id, id=config_id, destination_id=new_destination_id, **values
        )
        kept = kept.on_conflict_do_update(index_elements=["task_id", "id"], set_=values)
        destination_id = session.execute(kept.returning(_table.destination_id)).scalar_one()
        # An existing configuration was replaced, so send its pending deliveries to the new address.
        if destination_id != new_destination_id:
            readdress(session, destination_id=destination_id, sealed_address=sealed)
        return self.get(session, task_id, config_id)

    def get(self, session: Session, task_id: UUID, config_id: str) -> TaskPushNotificationConfig:
        """Return a configuration. Raises TaskNotFound."""
        statement = select(task_push_configurations).where(_table.task_id == task_id, _table.id == config_id)
        row = session.execute(statement).one_or_none() if is_identifier(config_id) else None
        if row is None:
            raise TaskNotFound("The task has no such push notification configuration.")
        return self._shown(row)

    def list_page(
        self, session: Session, task_id: UUID, *, size: int, token: str
    ) -> tuple[tuple[TaskPushNotificationConfig, ...], str]:
        """Return a page of the configurations in the order of their ids, and the token of the next page."""
        statement = select(task_push_configurations).where(_table.task_id == task_id)
        if token:
            statement = statement.where(_table.id > _read_token(token))
        # Read one additional row to find out whether another page follows, without a count.
        rows = session.execute(statement.order_by(_table.id).limit(size + 1)).all()
        token = _make_token(rows[size - 1].id) if len(rows) > size else ""
        return tuple(self._shown(row) for row in rows[:size]), token

    def delete(self, session: Session, task_id: UUID, config_id: str) -> None:
        """Delete a configuration, if it exists, and its pending deliveries.

        A delivery that is being sent is the last one. Updates of the task take the same lock. So an update has either
        enqueued its delivery before, which is deleted here, or does not see the configuration.
        """
        if not is_identifier(config_id):
            return
        _lock_task(session, task_id)
        gone = delete(task_push_configurations).where(_table.task_id == task_id, _table.id == config_id)
        for destination_id in session.execute(gone.returning(_table.destination_id)).scalars().all():
            give_up(session, destination_id=destination_id, code="configuration_deleted")

    def _check(self, url: str, headers: dict[str, str]) -> None:
        try:
            parse_url(url, self.policy, with_secrets=True)
            check_headers(headers)
        except EgressError as error:
            raise _wrong("url", error.detail) from error

    def _shown(self, row: Row[Any]) -> TaskPushNotificationConfig:
        opened = json.loads(self.encryption.decrypt(row.address_encrypted))
        return TaskPushNotificationConfig(
            id=row.id,
            task_id=str(row.task_id),
            url=opened["url"],
            token=opened["headers"].get(TOKEN_HEADER) or opened.get("secret"),
            authentication=AuthenticationInfo(scheme=row.scheme) if row.scheme else None,
        )


def _lock_task(session: Session, task_id: UUID) -> None:
    """Lock the task's row, as each update does before it reads the configurations."""
    session.execute(select(tasks.c.id).where(tasks.c.id == task_id).with_for_update())


def origin_of(url: str) -> str:
    """Return the scheme, host and port of a URL, without the components that may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _headers(wanted: TaskPushNotificationConfig) -> dict[str, str]:
    token = wanted.token or ""
    headers = {TOKEN_HEADER: token} if token and not token.startswith(WEBHOOK_SECRET_PREFIX) else {}
    proof = wanted.authentication
    if proof is not None:
        if not _SCHEME.fullmatch(proof.scheme):
            raise _wrong("authentication.scheme", "must be the name of an HTTP authentication scheme")
        headers["Authorization"] = f"{proof.scheme} {proof.credentials or ''}".strip()
    return headers


def _secret(token: str | None) -> str | None:
    """Return the signing secret: the token if it is a Standard Webhooks secret, or a secret with the token's bytes."""
    if not token:
        return None
    if not token.startswith(WEBHOOK_SECRET_PREFIX):
        return WEBHOOK_SECRET_PREFIX + base64.b64encode(token.encode()).decode()
    try:
        key = base64.b64decode(token.removeprefix(WEBHOOK_SECRET_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not key:
        raise _wrong("token", f"must be base64 after {WEBHOOK_SECRET_PREFIX}")
    return token


def _make_token(config_id: str) -> str:
    return base64.urlsafe_b64encode(config_id.encode()).decode()


def _read_token(token: str) -> str:
    try:
        config_id = base64.urlsafe_b64decode(token.encode()).decode()
    except ValueError:
        config_id = ""
    if not is_identifier(config_id):
        raise _wrong("pageToken", "is not a page token that this list returned", location="query")
    return config_id


def _wrong(name: str, message: str, *, location: str = "body") -> InvalidParams:
    return InvalidParams(errors=[FieldError(location=location, name=name, message=message)])
