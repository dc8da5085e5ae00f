"""The SQL statements of `credential_lookup.py`: each reads a credential and the rows that can invalidate it.

An `UNREVOKED` statement is for running requests: it returns no row if one of these rows was disabled, revoked or
deleted. A `LIVE` statement is for new requests and also checks expiry. `sql/identity_require_authority.sql` states
the same rules for commits.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Uuid, and_, bindparam, exists, func, null, or_, select

from shared.identity.access.effective_permissions import bindings_of
from shared.identity.console_tables import console_sessions
from shared.identity.tables import (
    api_keys,
    client_credentials,
    deployments,
    distributions,
    identities,
    memberships,
    organizations,
    revoked_tokens,
    role_bindings,
    users,
    versions,
)

IDLE = timedelta(hours=2)
"""A console session that was not used for this long is refused."""
STEP_UP = timedelta(minutes=10)
"""How long after a sign-in or a step-up a session may spend money or show secrets."""


def is_live(columns: Any) -> ColumnElement[bool]:
    """Return the SQL condition that a secret's row is neither revoked nor expired."""
    return and_(columns.revoked_at.is_(None), _is_unexpired(columns))


def _is_unexpired(columns: Any) -> ColumnElement[bool]:
    return or_(columns.expires_at.is_(None), columns.expires_at > func.now())


def used_recently(last_used_at: ColumnElement[Any]) -> Any:
    """Return a column that is true if a use was recorded within the last minute."""
    # `last_use.py` writes at most once a minute. With this column a request knows that it need not queue a write.
    return func.coalesce(last_used_at > func.now() - func.make_interval(0, 0, 0, 0, 0, 1), False).label(
        "used_recently"
    )


# Build the statements once at import: SQLAlchemy takes longer to assemble one than Postgres takes to run it.

_suspended = organizations.c.suspended_at.is_not(None)
UNREVOKED_RUNTIME = (
    select(
        deployments.c.organization_id,
        deployments.c.daemon_identity_id,
        _suspended.label("is_suspended"),
        bindings_of(role_bindings.c.subject_identity_id == deployments.c.daemon_identity_id),
    )
    .join(organizations, organizations.c.id == deployments.c.organization_id)
    .join(identities, identities.c.id == deployments.c.daemon_identity_id)
    .join(versions, versions.c.deployment_id == deployments.c.id)
    .join(client_credentials, client_credentials.c.deployment_id == deployments.c.id)
    .where(
        deployments.c.id == bindparam("deployment"),
        deployments.c.client_id == bindparam("client"),
        deployments.c.disabled_at.is_(None),
        identities.c.disabled_at.is_(None),
        versions.c.id == bindparam("version"),
        versions.c.revoked_at.is_(None),
        client_credentials.c.id == bindparam("credential"),
        client_credentials.c.revoked_at.is_(None),
        ~exists().where(revoked_tokens.c.jti == bindparam("token")),
    )
)
LIVE_RUNTIME = UNREVOKED_RUNTIME.where(_is_unexpired(client_credentials.c))
_user_bindings = bindings_of(
    and_(
        role_bindings.c.subject_user_id == users.c.id,
        role_bindings.c.organization_id == memberships.c.organization_id,
    )
)


def _is_membership_in(*organizations_in_turn: ColumnElement[Any]) -> ColumnElement[bool]:
    """Return the join condition for the user's membership in an organization: the first argument that is not null."""
    acting_in = func.coalesce(*organizations_in_turn)
    return and_(memberships.c.user_id == users.c.id, memberships.c.organization_id == acting_in)


UNREVOKED_API_KEY = (
    select(
        api_keys.c.id,
        api_keys.c.user_id,
        api_keys.c.organization_id.label("bound_organization_id"),
        users.c.is_operator,
        memberships.c.organization_id,
        memberships.c.role,
        _suspended.label("is_suspended"),
        used_recently(api_keys.c.last_used_at),
        _user_bindings,
    )
    .join(users, users.c.id == api_keys.c.user_id)
    .outerjoin(
        memberships,
        _is_membership_in(
            # The key's binding comes first: a bound key never acts in another organization.
            api_keys.c.organization_id,
            bindparam("acting_in", type_=Uuid),
            users.c.active_organization_id,
        ),
    )
    .outerjoin(organizations, organizations.c.id == memberships.c.organization_id)
    .where(
        api_keys.c.hash == bindparam("hash"),
        api_keys.c.revoked_at.is_(None),
        users.c.disabled_at.is_(None),
        # A bound key becomes invalid when the membership ends. An unbound key stays valid without an organization.
        or_(api_keys.c.organization_id.is_(None), memberships.c.organization_id.is_not(None)),
    )
)
LIVE_API_KEY = UNREVOKED_API_KEY.where(_is_unexpired(api_keys.c))
UNREVOKED_SESSION = (
    select(
        console_sessions.c.id,
        console_sessions.c.user_id,
        null().label("bound_organization_id"),
        users.c.is_operator,
        memberships.c.organization_id,
        memberships.c.role,
        _suspended.label("is_suspended"),
        used_recently(console_sessions.c.last_used_at),
        (console_sessions.c.stepped_up_at > func.now() - STEP_UP).label("has_stepped_up"),
        _user_bindings,
    )
    .join(users, users.c.id == console_sessions.c.user_id)
    .outerjoin(
        memberships,
        _is_membership_in(
            bindparam("acting_in", type_=Uuid),
            console_sessions.c.organization_id,
            users.c.active_organization_id,
        ),
    )
    .outerjoin(organizations, organizations.c.id == memberships.c.organization_id)
    .where(
        console_sessions.c.hash == bindparam("hash"),
        console_sessions.c.revoked_at.is_(None),
        users.c.disabled_at.is_(None),
    )
)
LIVE_SESSION = UNREVOKED_SESSION.where(
    _is_unexpired(console_sessions.c), console_sessions.c.last_used_at > func.now() - IDLE
)
EXPIRED_API_KEY = select(
    exists().where(
        api_keys.c.hash == bindparam("hash"),
        api_keys.c.revoked_at.is_(None),
        api_keys.c.expires_at <= func.now(),
    )
)
_payers = organizations.alias("payers")
ATTRIBUTION = (
    select(
        identities.c.kind.label("owner_kind"),
        identities.c.organization_id,
        or_(_suspended, _payers.c.suspended_at.is_not(None)).label("is_suspended"),
    )
    .join(organizations, organizations.c.id == identities.c.organization_id)
    .join(_payers, _payers.c.id == bindparam("payer"))
    .where(
        identities.c.id == bindparam("principal"),
        identities.c.disabled_at.is_(None),
        or_(
            bindparam("distribution", type_=Uuid).is_(None),
            exists().where(
                distributions.c.id == bindparam("distribution", type_=Uuid),
                distributions.c.disabled_at.is_(None),
            ),
        ),
    )
)
