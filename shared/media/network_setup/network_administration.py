"""Set, replace and delete a distribution's settings for messaging networks, encrypted and audited.

A replaced webhook secret stays valid for the overlap, so that no webhook fails in between. `network_settings.py`
reads the values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy import bindparam, case, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert

from shared.config.settings import Settings
from shared.db.database import Session
from shared.encryption import Encryption
from shared.errors import FieldError, ValidationFailed
from shared.identity.access.authorization import Actor
from shared.identity.directory.distributions import (
    DEFAULT_OVERLAP_SECONDS,
    get_managed_distribution,
    record_change,
    require_overlap,
)
from shared.identity.errors import ResourceNotFound
from shared.identity.tables import distributions
from shared.media.errors import NetworkNotRouted
from shared.media.importing.paused_imports import resume
from shared.media.network_tables import network_settings
from shared.media.networks.base import Network, NetworkSetting, SettingKind

MAX_ADDRESS_CHARACTERS = 512
_table = network_settings.c


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSummary:
    """A setting that has a value, without the value."""

    name: str
    last4: str
    previous_expires_at: datetime | None
    """Until when the replaced value is accepted too."""
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """A distribution's settings for one network."""

    distribution_id: UUID
    network: str
    settings: tuple[SettingSummary, ...]


def put_network_settings(
    session: Session,
    settings: Settings,
    *,
    actor: Actor,
    distribution_id: UUID,
    network: Network,
    values: Mapping[str, str],
    overlap_seconds: int = DEFAULT_OVERLAP_SECONDS,
) -> NetworkSettings:
    """Replace a distribution's settings for a network; a setting left out returns to its default.

    A replaced signing secret stays valid for the overlap, and for less if the same settings are put again with a
    shorter one; the secret before it ends at once. Imports that were paused for the network's settings are queued
    again. Raises NetworkNotRouted, ValidationFailed, ResourceNotFound and PermissionDenied.
    """
    distribution = get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    if network.name not in distribution.networks:
        raise NetworkNotRouted
    checked = _check(settings, network, values)
    overlap = require_overlap(overlap_seconds)
    # Before reading the current values, which decide what is replaced and audited.
    _lock_distribution(session, distribution_id)
    encryption = Encryption(settings)
    kept = _decrypted(session, encryption, distribution_id, network.name)
    # In a fixed order and only if changed: an equal value must not end the overlap of the one before it.
    for name in (setting.name for setting in network.settings):
        if name in checked and kept.get(name) != checked[name]:
            _replace(session, encryption, (distribution_id, network, name), checked[name], overlap)
    _remove(session, distribution_id, network.name, _table.name.not_in(checked))
    is_shorter = _shorten_overlaps(session, distribution_id, network.name, overlap)
    resumed = resume(session, distribution_id, network=network.name)
    if resumed or is_shorter or kept != checked:
        details = {"network": network.name, "settings": ", ".join(sorted(checked))}
        record_change(session, actor, "distribution.network_set", distribution, **details)
    return _read_settings(session, distribution_id, network.name)


def get_network_settings(
    session: Session, *, actor: Actor, distribution_id: UUID, network: Network
) -> NetworkSettings:
    """Return a distribution's settings for a network. Raises ResourceNotFound if there are none."""
    get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    return _read_settings(session, distribution_id, network.name)


def remove_network_settings(
    session: Session, *, actor: Actor, distribution_id: UUID, network: Network
) -> None:
    """Delete all settings of a network. Raises ResourceNotFound if there are none.

    Its webhooks are refused from now on, and pending imports pause.
    """
    distribution = get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    if not _remove(session, distribution_id, network.name):
        raise ResourceNotFound
    record_change(session, actor, "distribution.network_removed", distribution, network=network.name)


def _lock_distribution(session: Session, distribution_id: UUID) -> None:
    """Lock the distribution, so that concurrent changes are serialized."""
    held = select(distributions.c.id).where(distributions.c.id == distribution_id)
    session.execute(held.with_for_update(key_share=True))


def _check(settings: Settings, network: Network, values: Mapping[str, str]) -> Mapping[str, str]:
    known = {setting.name: setting for setting in network.settings}
    errors = [_wrong(name, "is not a setting of this network") for name in values if name not in known]
    errors += [
        _wrong(setting.name, "is required")
        for setting in network.settings
        if setting.is_required and setting.default is None and setting.name not in values
    ]
    given = {name: value for name, value in values.items() if name in known}
    for name, value in given.items():
        problem = _find_problem(settings, known[name], value)
        if problem is not None:
            errors.append(_wrong(name, problem))
    if errors:
        raise ValidationFailed(errors=errors)
    return {
        name: value.rstrip("/") if known[name].kind is SettingKind.ADDRESS else value
        for name, value in given.items()
    }


def _find_problem(settings: Settings, setting: NetworkSetting, value: str) -> str | None:
    if setting.kind is not SettingKind.ADDRESS:
        return None if setting.pattern.fullmatch(value) else "does not match the form of this setting"
    if not _is_address(value):
        return "must be a URL that begins with https://, without a query"
    if value.lower().startswith("http:") and not settings.egress_allow_http:
        return "must begin with https://"
    return None


def _is_address(value: str) -> bool:
    if len(value) > MAX_ADDRESS_CHARACTERS or not value.isascii() or not value.isprintable() or " " in value:
        return False
    try:
        parts = urlsplit(value)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
            and not any(character in value for character in "@?#\\")
        )
    except ValueError:
        return False


def _wrong(name: str, message: str) -> FieldError:
    return FieldError(location="body", name=f"settings.{name}", message=message)


def _decrypted(
    session: Session, encryption: Encryption, distribution_id: UUID, network: str
) -> Mapping[str, str]:
    rows = session.execute(_VALUES, {"distribution": distribution_id, "network": network})
    return {row.name: encryption.decrypt(bytes(row.value)) for row in rows}


def _replace(
    session: Session,
    encryption: Encryption,
    key: tuple[UUID, Network, str],
    value: str,
    overlap: timedelta,
) -> None:
    distribution_id, network, name = key
    written = {
        "value_encrypted": encryption.encrypt(value),
        "last4": value[-4:],
        "changed_at": func.now(),
    }
    replaced = {
        "previous_encrypted": network_settings.c.value_encrypted,
        "previous_expires_at": func.now() + overlap,
    }
    session.execute(
        insert(network_settings)
        .values(distribution_id=distribution_id, network=network.name, name=name, **written)
        .on_conflict_do_update(
            index_elements=[_table.distribution_id, _table.network, _table.name],
            # Only settings that verify webhooks have an overlap; other values are replaced at once.
            set_=written | (replaced if name in network.signature.settings else {}),
        )
    )


def _shorten_overlaps(session: Session, distribution_id: UUID, network: str, overlap: timedelta) -> bool:
    """Shorten longer overlaps of replaced secrets; return whether any was shortened."""
    ends_at = _table.changed_at + overlap
    shorter = (
        update(network_settings)
        .where(_table.distribution_id == distribution_id, _table.network == network)
        .where(_IS_PREVIOUS_GOOD, _table.previous_expires_at > ends_at)
        .values(previous_expires_at=ends_at)
    )
    return session.execute(shorter).rowcount > 0


def _remove(session: Session, distribution_id: UUID, network: str, *more: Any) -> bool:
    statement = delete(network_settings).where(
        _table.distribution_id == distribution_id, _table.network == network, *more
    )
    return session.execute(statement).rowcount > 0


def _read_settings(session: Session, distribution_id: UUID, network: str) -> NetworkSettings:
    rows = session.execute(_SUMMARIES, {"distribution": distribution_id, "network": network}).all()
    if not rows:
        raise ResourceNotFound
    return NetworkSettings(
        distribution_id=distribution_id,
        network=network,
        settings=tuple(SettingSummary(**row._asdict()) for row in rows),
    )


_OF_NETWORK = (_table.distribution_id == bindparam("distribution"), _table.network == bindparam("network"))
_IS_PREVIOUS_GOOD = _table.previous_expires_at > func.now()
_VALUES = select(_table.name, _table.value_encrypted.label("value")).where(*_OF_NETWORK)
_SUMMARIES = (
    select(
        _table.name,
        _table.last4,
        case((_IS_PREVIOUS_GOOD, _table.previous_expires_at)).label("previous_expires_at"),
        _table.changed_at,
    )
    .where(*_OF_NETWORK)
    .order_by(_table.name)
)
