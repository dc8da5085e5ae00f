"""Install a Slack app in many workspaces: an administrator starts, and a person of the workspace consents.

`state` is sent to Slack and returns with that person's browser. It is encrypted with our keys and names the
administrator's credential and both distributions. It is valid once, for ten minutes, and only while the credential is
valid and may administer both. The token is stored like any setting, and the workspace is routed to the target
distribution.
"""

import json
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from cryptography.fernet import InvalidToken
from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.egress.fetch import ask
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.errors import PermissionDenied
from shared.identity.access.authorization import OPERATOR, Actor, administrator
from shared.identity.access.callers import ExecutorKind, Proof
from shared.identity.authentication.credential_lookup import find_live_api_key, find_live_session
from shared.identity.authentication.credential_types import direct_caller, user_credential
from shared.identity.directory.distributions import Distribution, get_managed_distribution, record_change
from shared.identity.tables import revoked_tokens
from shared.media.errors import AppClientMissing, InstallationRefused, NetworkNotConfigured, NetworkNotRouted
from shared.media.network_settings import get_credentials
from shared.media.network_setup.network_accounts import NetworkAccount, put_network_account
from shared.media.network_setup.network_administration import put_network_settings
from shared.media.networks.registry import NETWORKS
from shared.media.networks.slack_installation import InstalledWorkspace, authorize_url, exchange
from shared.media.networks.webhooks import Credentials, SignatureInvalid

SLACK = NETWORKS["slack"]
LIFETIME = timedelta(minutes=10)
EXCHANGE_TIMEOUT_SECONDS = 5.0
MAXIMUM_STATE_CHARACTERS = 2048
_PURPOSE = "slack installation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A started installation: the address at which a person of the workspace consents, and its expiry."""

    authorize_url: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _InstallationState:
    """The content of a `state`."""

    distribution_id: UUID
    target_id: UUID
    nonce: str
    expires_at: datetime
    key: str | None
    is_session: bool
    acting_in: UUID | None


def begin_installation(
    session: Session, settings: Settings, *, actor: Actor, distribution_id: UUID, target_id: UUID
) -> Installation:
    """Start to install a distribution's app in a workspace that `target_id` receives for.

    Raises NetworkNotRouted if one of them lacks Slack, AppClientMissing if the app's client is not configured,
    ResourceNotFound and PermissionDenied.
    """
    distribution, _ = _authorize(session, actor, distribution_id, target_id)
    credentials = _credentials(session, settings, distribution_id)
    now = session.execute(select(func.now())).scalar_one()
    expires_at = now + LIFETIME
    claims = {
        # The same keys encrypt other secrets; the purpose prevents one from being used as a state.
        "for": _PURPOSE,
        "distribution": str(distribution_id),
        "target": str(target_id),
        "nonce": secrets.token_hex(16),
        "until": expires_at.isoformat(),
        **_credential_of(actor),
        "organization": None if actor.caller.organization_id is None else str(actor.caller.organization_id),
    }
    state = Encryption(settings).encrypt(json.dumps(claims)).decode()
    address = authorize_url(credentials, redirect_uri=redirect_uri(settings, distribution_id), state=state)
    details = {"network": SLACK.name, "target": str(target_id)}
    record_change(session, actor, "distribution.network_installation_begun", distribution, **details)
    return Installation(authorize_url=address, expires_at=expires_at)


def complete_installation(
    database: Database, settings: Settings, *, distribution_id: UUID, state: str, code: str
) -> NetworkAccount:
    """Exchange a code for the workspace's token, store it, and route the workspace.

    Raises SignatureInvalid for a state that is not ours, was used or has expired, or if its credential is no longer
    valid or permitted; InstallationRefused if Slack or the workspace refuses.
    """
    begun = _decrypt_state(settings, state, distribution_id)
    with database.transaction() as session:
        # Inserts under a unique key: of two concurrent uses of one state, one fails.
        _consume_state(session, begun)
        actor = _actor(session, begun)
        _authorize(session, actor, distribution_id, begun.target_id)
        credentials = _credentials(session, settings, distribution_id)
    # Only now, so that a refused consent also uses the state up.
    if not code:
        raise InstallationRefused
    policy = EgressPolicy.of(settings)
    installed = exchange(
        credentials,
        redirect_uri=redirect_uri(settings, distribution_id),
        code=code,
        ask=partial(ask, policy=policy, deadline_seconds=EXCHANGE_TIMEOUT_SECONDS),
    )
    with database.transaction() as session:
        return _save_workspace(session, settings, begun, credentials, installed)


def redirect_uri(settings: Settings, distribution_id: UUID) -> str:
    """Return the address to which Slack redirects the browser; the app must list it."""
    return f"{settings.base_url}/distributions/{distribution_id}/webhooks/slack/installed"


def _credential_of(actor: Actor) -> dict[str, object]:
    """Return the claims that name the actor's credential; only the command line has none.

    Raises PermissionDenied.
    """
    proof = actor.caller.proof
    if proof is None and actor.caller.executor.kind is not ExecutorKind.OPERATOR:
        raise PermissionDenied("An installation must be started with an API key or a session.")
    return {
        "key": None if proof is None else proof.digest.hex(),
        "session": proof is not None and proof.is_session,
    }


def _authorize(session: Session, actor: Actor, *distribution_ids: UUID) -> list[Distribution]:
    found = [get_managed_distribution(session, actor=actor, distribution_id=one) for one in distribution_ids]
    if any(SLACK.name not in distribution.networks for distribution in found):
        raise NetworkNotRouted
    return found


def _credentials(session: Session, settings: Settings, distribution_id: UUID) -> Credentials:
    try:
        found = get_credentials(session, Encryption(settings), distribution_id, SLACK.name)
    except NetworkNotConfigured as error:
        raise AppClientMissing from error
    if not found.keys() >= {"clientId", "clientSecret"}:
        raise AppClientMissing
    return found


def _decrypt_state(settings: Settings, state: str, distribution_id: UUID) -> _InstallationState:
    try:
        if len(state) > MAXIMUM_STATE_CHARACTERS:
            raise SignatureInvalid
        begun = _parse_state(json.loads(Encryption(settings).decrypt(state.encode("ascii"))))
    except (InvalidToken, ValueError, KeyError, TypeError) as error:
        raise SignatureInvalid from error
    if begun.distribution_id != distribution_id:
        raise SignatureInvalid
    return begun


def _parse_state(claims: Any) -> _InstallationState:
    if claims["for"] != _PURPOSE:
        raise SignatureInvalid
    organization = claims["organization"]
    return _InstallationState(
        distribution_id=UUID(claims["distribution"]),
        target_id=UUID(claims["target"]),
        nonce=claims["nonce"],
        expires_at=datetime.fromisoformat(claims["until"]),
        key=claims["key"],
        is_session=claims["session"],
        acting_in=None if organization is None else UUID(organization),
    )


def _consume_state(session: Session, begun: _InstallationState) -> None:
    """Record the state as used, among the revoked tokens, until it would have expired."""
    # The prefix keeps it apart from ids of access tokens.
    kept = {"jti": f"installation {begun.nonce}", "expires_at": begun.expires_at}
    first = insert(revoked_tokens).values(kept).on_conflict_do_nothing().returning(revoked_tokens.c.jti)
    is_expired = session.execute(select(func.now() >= begun.expires_at)).scalar_one()
    if is_expired or session.execute(first).one_or_none() is None:
        raise SignatureInvalid


def _actor(session: Session, begun: _InstallationState) -> Actor:
    """Return the actor as the rows are now. Raises SignatureInvalid if the credential is no longer valid."""
    if begun.key is None:
        return OPERATOR
    proof = Proof(digest=bytes.fromhex(begun.key), is_session=begun.is_session)
    find = find_live_session if begun.is_session else find_live_api_key
    live = find(session, proof.digest, acting_in=begun.acting_in)
    if live is None:
        raise SignatureInvalid
    return administrator(direct_caller(user_credential(proof, live)), None)


def _save_workspace(
    session: Session,
    settings: Settings,
    begun: _InstallationState,
    app: Credentials,
    installed: InstalledWorkspace,
) -> NetworkAccount:
    actor = _actor(session, begun)
    try:
        known = get_credentials(session, Encryption(settings), begun.target_id, SLACK.name)
    except NetworkNotConfigured:
        # The target has no settings yet: it takes over the app's signing secret and server.
        known = {name: app[name] for name in ("signingSecret", "apiBaseUrl")}
    own = {
        one.name: known[one.name] for one in SLACK.settings if known.get(one.name) not in (None, one.default)
    }
    put_network_settings(
        session,
        settings,
        actor=actor,
        distribution_id=begun.target_id,
        network=SLACK,
        values={**own, "botToken": installed.bot_token},
    )
    return put_network_account(
        session,
        actor=actor,
        distribution_id=begun.distribution_id,
        network=SLACK,
        account=installed.team_id,
        target_id=begun.target_id,
    )
