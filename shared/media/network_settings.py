"""Read a distribution's network settings: signing secrets, tokens, addresses, and valid replaced secrets.

Callers must not keep credentials longer than they use them.
"""

import secrets
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Text, any_, bindparam, case, func, select, tuple_, update

from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.encryption import Encryption
from shared.identity.credentials.webhook_secrets import forget_replaced_secrets
from shared.identity.tables import distributions
from shared.media.errors import NetworkNotConfigured
from shared.media.network_tables import network_settings
from shared.media.networks.base import Network
from shared.media.networks.registry import find_network
from shared.media.networks.signatures import verify
from shared.media.networks.webhooks import Credentials, SignatureInvalid, WebhookRequest, previous
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import RETENTION
from shared.runtime.batches import run_in_batches

_table = network_settings.c
BATCH_SIZE = 1000


def get_credentials(
    session: Session, encryption: Encryption, distribution_id: UUID, network: str
) -> Credentials:
    """Return the credentials with which a network's media is fetched. Raises NetworkNotConfigured."""
    rows = session.execute(_VALUES, {"distribution": distribution_id, "network": network}).all()
    found = find_network(network)
    if not rows or found is None:
        raise NetworkNotConfigured
    return _credentials(encryption, found, rows)


def find_webhook_credentials(
    session: Session, encryption: Encryption, distribution_id: UUID, network: Network
) -> tuple[Credentials, bool]:
    """Return the credentials that verify a network's webhooks, and whether the distribution accepts such webhooks.

    If the distribution does not accept them, return random credentials after the same time: the time of a refusal must
    not reveal whether the distribution exists.
    """
    parameters = {"distribution": distribution_id, "network": network.name}
    rows = session.execute(_WEBHOOK_VALUES, parameters).all()
    if rows:
        return _credentials(encryption, network, rows), True
    return _made_up_credentials(encryption, network), False


def verify_webhook(
    session: Session, *, settings: Settings, distribution_id: UUID, network: Network, request: WebhookRequest
) -> Credentials:
    """Verify a webhook and return the credentials that verify it.

    Raises SignatureInvalid if the signature is wrong, or if the distribution does not exist, is disabled or is not
    set up for the network. The response time and the error text are the same in all these cases.
    """
    credentials, is_expected = find_webhook_credentials(
        session, Encryption(settings), distribution_id, network
    )
    # Verify even for an unknown distribution, so that its refusal takes the same time.
    verify(network.signature, request, credentials)
    if not is_expected:
        raise SignatureInvalid
    return credentials


@sweep("media.forget_replaced_secrets", queue=RETENTION, every_seconds=3600)
def _forget_replaced_secrets(context: Context) -> int:
    """Delete replaced secrets after their overlap: distributions' webhook secrets and networks' settings."""
    return forget_replaced_secrets(context.database) + forget_replaced_settings(context.database)


def forget_replaced_settings(database: Database) -> int:
    """Delete replaced values of settings after their overlap. Return the number of deleted values."""
    return run_in_batches(database, _FORGET, size=BATCH_SIZE, swept="replaced_secrets")


def _credentials(encryption: Encryption, network: Network, rows: Sequence[Row[Any]]) -> Credentials:
    found = {setting.name: setting.default for setting in network.settings if setting.default is not None}
    for row in rows:
        found[row.name] = encryption.decrypt(bytes(row.value))
        if row.previous is not None:
            # Return the replaced value too during the overlap, because the network decides when it switches to the
            # new value.
            found[previous(row.name)] = encryption.decrypt(bytes(row.previous))
    return found


def _made_up_credentials(encryption: Encryption, network: Network) -> Credentials:
    """Return random credentials. They are encrypted, because this takes as long as decrypting real ones."""
    needed = [setting.name for setting in network.settings if setting.is_required and setting.default is None]
    made = {name: secrets.token_hex(32) for name in needed}
    for value in made.values():
        encryption.encrypt(value)
    return made


_OF_NETWORK = (_table.distribution_id == bindparam("distribution"), _table.network == bindparam("network"))
_VALUES = select(
    _table.name,
    _table.value_encrypted.label("value"),
    case((_table.previous_expires_at > func.now(), _table.previous_encrypted)).label("previous"),
).where(*_OF_NETWORK)
_WEBHOOK_VALUES = _VALUES.join(distributions, distributions.c.id == _table.distribution_id).where(
    # Treat a disabled distribution like one that does not exist, so that both are refused in the same way.
    distributions.c.disabled_at.is_(None),
    bindparam("network", type_=Text) == any_(distributions.c.networks),
)
_FORGET = (
    update(network_settings)
    .where(
        tuple_(*network_settings.primary_key).in_(
            select(*network_settings.primary_key)
            .where(_table.previous_expires_at <= func.now())
            .limit(bindparam("limit"))
        )
    )
    .values(previous_encrypted=None, previous_expires_at=None)
)
