"""Route the accounts of one app to the distributions that receive for them.

An app has one webhook address, of one distribution, and may be installed in many workspaces or have many numbers. The
account (`shared/media/networks/README.md`) decides which distribution receives a message, with its own identity,
credentials, agent and endpoint. An account without a route belongs to the distribution of the webhook address.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, delete, func, select
from sqlalchemy.dialects.postgresql import insert

from shared.db.database import Session
from shared.errors import FieldError, ValidationFailed
from shared.identity.access.authorization import Actor
from shared.identity.directory.distributions import get_managed_distribution, record_change
from shared.identity.errors import ResourceNotFound
from shared.ids import new_id
from shared.media.errors import NetworkNotRouted
from shared.media.network_tables import network_accounts
from shared.media.networks.base import Network
from shared.media.networks.payloads import as_id
from shared.pagination import Page, Position, descending, paginate

_table = network_accounts.c


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkAccount:
    """An account of a network, and the distribution that receives for it."""

    distribution_id: UUID
    network: str
    account: str
    target_distribution_id: UUID
    changed_at: datetime


def put_network_account(
    session: Session, *, actor: Actor, distribution_id: UUID, network: Network, account: str, target_id: UUID
) -> NetworkAccount:
    """Route an account to a distribution from now on; the actor must manage both distributions.

    Raises NetworkNotRouted if one of them lacks the network, ValidationFailed, ResourceNotFound and PermissionDenied.
    """
    distribution = get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    target = get_managed_distribution(session, actor=actor, distribution_id=target_id)
    if network.name not in distribution.networks or network.name not in target.networks:
        raise NetworkNotRouted
    if as_id(account) is None:
        message = "must have 1 to 127 characters, none of them a control character"
        raise ValidationFailed(errors=[FieldError(location="path", name="account", message=message)])
    changes = {"target_distribution_id": target_id, "changed_at": func.now()}
    key = {"distribution_id": distribution_id, "network": network.name, "account": account}
    # The same target again changes nothing, so nothing is audited.
    is_another = _table.target_distribution_id != target_id
    routed = session.execute(
        insert(network_accounts)
        .values(id=new_id(), **key, **changes)
        .on_conflict_do_update(constraint="uq_network_accounts_account", set_=changes, where=is_another)
    )
    if routed.rowcount:
        details = {"network": network.name, "account": account, "target": str(target_id)}
        record_change(session, actor, "distribution.network_account_set", distribution, **details)
    return _read(session.execute(select(network_accounts).filter_by(**key)).one())


def list_network_accounts(
    session: Session, *, actor: Actor, distribution_id: UUID, network: Network, **page: Unpack[Position]
) -> Page[NetworkAccount]:
    """Return a page of routed accounts, newest first."""
    get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    statement = select(network_accounts).where(
        _table.distribution_id == distribution_id, _table.network == network.name
    )
    return paginate(session, statement, descending(_table.id), _read, **page)


def remove_network_account(
    session: Session, *, actor: Actor, distribution_id: UUID, network: Network, account: str
) -> None:
    """Delete the route of an account. Raises ResourceNotFound if there is none.

    The account belongs to the distribution of the webhook address again.
    """
    distribution = get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    is_this = _table.distribution_id == distribution_id, _table.network == network.name
    if not session.execute(delete(network_accounts).where(*is_this, _table.account == account)).rowcount:
        raise ResourceNotFound
    details = {"network": network.name, "account": account}
    record_change(session, actor, "distribution.network_account_removed", distribution, **details)


def find_targets(
    session: Session, distribution_id: UUID, network: Network, accounts: Collection[str]
) -> Mapping[str, UUID]:
    """Return the distributions of these accounts, without accounts that have no route."""
    found = select(_table.account, _table.target_distribution_id).where(
        _table.distribution_id == distribution_id,
        _table.network == network.name,
        _table.account.in_(accounts),
    )
    return {row.account: row.target_distribution_id for row in session.execute(found)} if accounts else {}


def _read(row: Row[Any]) -> NetworkAccount:
    return NetworkAccount(**{name: value for name, value in row._asdict().items() if name != "id"})
