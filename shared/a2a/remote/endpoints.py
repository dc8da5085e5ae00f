"""Endpoints: the address, the credential and the options for the A2A server of a deployment.

If an administrator sets an endpoint, the remote behavior becomes the deployment's default behavior. If the endpoint is
deleted, the remote behavior is deleted too. A new endpoint needs its credential again: otherwise a caller that cannot
read the credential could send it to another address. The agent's card is stored in the same row
(`cards/card_refresh.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Row, delete, func, select
from sqlalchemy.dialects.postgresql import insert

from shared.a2a.behaviors.remote_behaviors import install_remote_behavior, remove_remote_behavior
from shared.a2a.endpoint_tables import deployment_endpoints
from shared.config.settings import Settings
from shared.db.database import Session
from shared.db.schema import columns_of
from shared.egress.errors import HeaderRefused
from shared.egress.policy import EgressPolicy
from shared.egress.urls import check_headers, parse_url
from shared.encryption import Encryption
from shared.errors import FieldError, ValidationFailed
from shared.identity.access.authorization import Actor, authorize_for_deployment
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.lookups import get_one
from shared.messaging.jobs import Job
from shared.messaging.queues import AGENTS

OUR_HEADERS = frozenset(
    {
        "a2a-version",
        "a2a-extensions",
        "accept",
        "authorization",
        "content-type",
        "idempotency-key",
        "if-none-match",
        "service-usage-attribution",
        "user-agent",
    }
)
"""The request headers that the service itself sets, in lower case."""
_table = deployment_endpoints.c


class Binding(StrEnum):
    """The protocol binding of an agent's server."""

    HTTP_JSON = "http+json"
    JSONRPC = "jsonrpc"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCards(Job):
    """Read the cards that are due (`cards/card_refresh.py`)."""

    kind = "agents.read_cards"
    queue = AGENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """An additional header that the agent's server, or a proxy in front of the server, requires."""

    header: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointDraft:
    """The values for an endpoint. `interface_override` replaces the address for messages in the card."""

    url: str
    card_url: str | None = None
    interface_override: str | None = None
    credential: Credential | None = None
    resends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The server to which messages of a deployment are sent.

    `binding` and `interface_url` are None until the card was read. `has_list_tasks` is None if the service does not
    know whether the agent lists its tasks. `resends` means that the service may send a message again that the agent may
    have received.
    """

    deployment_id: UUID
    url: str
    card_url: str | None
    interface_override: str | None
    credential_header: str | None
    credential_encrypted: bytes | None = field(repr=False)
    resends: bool
    binding: Binding | None
    interface_url: str | None
    tenant: str | None
    streams: bool
    has_list_tasks: bool | None

    def credential_headers(self, encryption: Encryption) -> Mapping[str, str]:
        """Return the header of the endpoint's credential, or no header."""
        if self.credential_header is None or self.credential_encrypted is None:
            return {}
        return {self.credential_header: encryption.decrypt(self.credential_encrypted)}


ENDPOINT_COLUMNS = tuple(column.name for column in fields(Endpoint))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEndpoint:
    """An endpoint as administrators see it, without the credential."""

    deployment_id: UUID
    url: str
    card_url: str | None
    interface_override: str | None
    credential_header: str | None
    resends: bool
    binding: Binding | None
    interface_url: str | None
    streams: bool
    problem: str | None
    checked_at: datetime | None
    updated_at: datetime
    created_at: datetime


def find_endpoint(session: Session, deployment_id: UUID) -> Endpoint | None:
    """Return the endpoint of a deployment, or None."""
    columns = columns_of(Endpoint, deployment_endpoints)
    row = session.execute(select(*columns).where(_table.deployment_id == deployment_id)).one_or_none()
    return None if row is None else endpoint_of(row)


def put_endpoint(
    session: Session, settings: Settings, *, actor: Actor, deployment_id: UUID, draft: EndpointDraft
) -> ShownEndpoint:
    """Set or replace the endpoint of a deployment. A worker then reads the agent's card.

    Raises SchemeRefused, UrlRefused, AddressRefused, ValidationFailed, BehaviorNameTaken.
    """
    organization_id = authorize_for_deployment(session, actor, Permission.DEPLOYMENT_MANAGE, deployment_id)
    values = _values(settings, draft)
    # Install the behavior before the endpoint is written: this locks the deployment, which serializes administrators.
    install_remote_behavior(session, deployment_id)
    before = find_endpoint(session, deployment_id)
    # Another address may belong to another agent, so delete the values of the old card.
    if before is None or any(values[name] != getattr(before, name) for name in _WHERE):
        values |= _NOTHING_READ
    values |= {"etag": None, "problem": None, "checked_at": None, "next_check_at": func.now()}
    values["updated_at"] = func.now()
    session.execute(
        insert(deployment_endpoints)
        .values(deployment_id=deployment_id, organization_id=organization_id, **values)
        .on_conflict_do_update(index_elements=[_table.deployment_id], set_=values)
    )
    record(session, actor, "endpoint.set", deployment_id, organization_id=organization_id, url=values["url"])
    # Enqueue a job that reads the card at once, because messages wait for the card.
    session.enqueue(ReadCards())
    return _get(session, deployment_id)


def get_endpoint(session: Session, *, actor: Actor, deployment_id: UUID) -> ShownEndpoint:
    """Return the endpoint of a deployment. Raises ResourceNotFound if there is none."""
    authorize_for_deployment(session, actor, Permission.DEPLOYMENT_MANAGE, deployment_id)
    return _get(session, deployment_id)


def remove_endpoint(session: Session, *, actor: Actor, deployment_id: UUID) -> None:
    """Delete the endpoint of a deployment and its remote behavior. Another behavior becomes the default.

    Running turns fail when their workers check their leases (`turn_state/leases.py`). The agent is not notified,
    because its address is gone.
    """
    organization_id = authorize_for_deployment(session, actor, Permission.DEPLOYMENT_MANAGE, deployment_id)
    remove_remote_behavior(session, deployment_id)
    removed = session.execute(delete(deployment_endpoints).where(_table.deployment_id == deployment_id))
    if removed.rowcount:
        record(session, actor, "endpoint.removed", deployment_id, organization_id=organization_id)


def _values(settings: Settings, draft: EndpointDraft) -> dict[str, Any]:
    policy = EgressPolicy.of(settings)
    for url in filter(None, (draft.url, draft.card_url, draft.interface_override)):
        parse_url(url, policy, with_secrets=True)
    for name in ("url", "interface_override"):
        if set(getattr(draft, name) or "") & {"?", "#"}:
            raise _wrong("url" if name == "url" else "interfaceUrl", "must not have a query or a fragment")
    sealed = None
    if draft.credential is not None:
        _check_credential(draft.credential)
        sealed = Encryption(settings).encrypt(draft.credential.value)
    return {
        "url": draft.url.rstrip("/"),
        "card_url": draft.card_url,
        "interface_override": draft.interface_override,
        "credential_header": draft.credential.header if draft.credential else None,
        "credential_encrypted": sealed,
        "resends": draft.resends,
    }


def _check_credential(credential: Credential) -> None:
    # Refuse headers of this service: the credential would replace the request token or a header of the protocol.
    if credential.header.lower() in OUR_HEADERS:
        raise _wrong("credential.header", "is a header that the service sets itself")
    try:
        check_headers({credential.header: credential.value})
    except HeaderRefused as refused:
        raise _wrong("credential", "is malformed, or its header belongs to the connection") from refused
    if not credential.value.strip():
        raise _wrong("credential.value", "must not be empty")


def endpoint_of(row: Any) -> Endpoint:
    """Return the endpoint in a row that has the columns `ENDPOINT_COLUMNS`."""
    sealed = row.credential_encrypted
    return Endpoint(
        **{
            **{name: getattr(row, name) for name in ENDPOINT_COLUMNS},
            "binding": Binding(row.binding) if row.binding is not None else None,
            "credential_encrypted": bytes(sealed) if sealed is not None else None,
        }
    )


def _get(session: Session, deployment_id: UUID) -> ShownEndpoint:
    columns = columns_of(ShownEndpoint, deployment_endpoints)
    return get_one(session, select(*columns).where(_table.deployment_id == deployment_id), _shown)


def _shown(row: Row[Any]) -> ShownEndpoint:
    binding = Binding(row.binding) if row.binding is not None else None
    return ShownEndpoint(**{**row._asdict(), "binding": binding})


def _wrong(name: str, message: str) -> ValidationFailed:
    return ValidationFailed(errors=[FieldError(location="body", name=name, message=message)])


_WHERE = ("url", "card_url", "interface_override")
_NOTHING_READ: Mapping[str, Any] = {
    "binding": None,
    "interface_url": None,
    "tenant": None,
    "streams": False,
    "has_list_tasks": None,
    "card": None,
}
