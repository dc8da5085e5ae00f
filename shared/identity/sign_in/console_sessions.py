"""Console sessions. A one-time sign-in link or an OpenID provider starts a session; a step-up replaces the session.

A step-up is a second authentication of the session's user. A session acts like an unbound API key of its user, but
has an organization selection of its own. This selection does not change the organization in which the user's keys
act and which they charge. The rows of sessions and links store only hashes.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import exists, func, insert, select, update

from shared.db.database import Session
from shared.errors import PermissionDenied
from shared.identity.access.authorization import Actor, administrator, authorize_operation
from shared.identity.access.callers import Caller, Executor, ExecutorKind
from shared.identity.audit import record
from shared.identity.authentication.credential_lookup import find_live_api_key
from shared.identity.conditional_updates import mark_disabled
from shared.identity.console_tables import console_links, console_sessions
from shared.identity.email_addresses import email_matches
from shared.identity.errors import ResourceNotFound
from shared.identity.secrets import Prefix, Secret, hash_secret, is_well_formed, issue
from shared.identity.tables import memberships, organizations, users
from shared.ids import new_id

LINK_LIFE = timedelta(minutes=10)
LONGEST = timedelta(hours=12)
"""The longest life of a session, also if it is used all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedLink:
    """A one-time sign-in link of a user."""

    user_id: UUID
    expires_at: datetime
    code: Secret = field(repr=False)

    def address(self, base_url: str) -> str:
        """Return the URL to open in a browser."""
        # Put the code in the fragment, which browsers do not send, so that no access log contains the code.
        return f"{base_url}/console/in#{self.code.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A new session with its token."""

    id: UUID
    token: Secret = field(repr=False)


def issue_link(session: Session, *, actor: Actor, user_id: UUID) -> IssuedLink:
    """Issue a sign-in link for a user. The actor must be an operator.

    Raises PermissionDenied, and ResourceNotFound if the user is unknown or disabled.
    """
    authorize_operation(actor)
    enabled = select(users.c.id).where(users.c.id == user_id, users.c.disabled_at.is_(None))
    if session.execute(enabled).one_or_none() is None:
        raise ResourceNotFound("The user does not exist or is disabled.")
    code = issue(Prefix.CONSOLE_LINK)
    made = (
        insert(console_links)
        .values(id=new_id(), user_id=user_id, token_hash=code.hash, expires_at=func.now() + LINK_LIFE)
        .returning(console_links.c.expires_at)
    )
    expires_at = session.execute(made).scalar_one()
    record(session, actor, "console_link.issued", user_id, user_id=user_id)
    return IssuedLink(user_id=user_id, expires_at=expires_at, code=code)


def sign_in(
    session: Session, code: str, *, request_id: str | None = None, client_address: str | None = None
) -> NewSession | None:
    """Start a session with the code of a sign-in link. Return None if the link is unknown, used or expired."""
    user_id = _use_link(session, code)
    if user_id is None:
        return None
    made = _begin(session, user_id)
    record(session, _actor(user_id, made.id, request_id, client_address), "console_session.began", made.id)
    return made


def sign_in_as(
    session: Session, email: str, *, request_id: str | None = None, client_address: str | None = None
) -> NewSession | None:
    """Start a session of the user with an address that a provider verified. Return None without an enabled user."""
    known = select(users.c.id).where(email_matches(email), users.c.disabled_at.is_(None))
    user_id: UUID | None = session.execute(known).scalar_one_or_none()
    if user_id is None:
        return None
    made = _begin(session, user_id)
    actor = _actor(user_id, made.id, request_id, client_address)
    record(session, actor, "console_session.began", made.id, proof="provider")
    return made


def step_up(session: Session, *, actor: Actor, proof: str) -> NewSession | None:
    """Replace a session after its user has authenticated again, by a new sign-in link or an unbound API key.

    The new session keeps the old one's organization and expiry. Return None if `proof` is not valid for this user.
    """
    user_id, session_id = actor.user_id, actor.caller.credential_id
    if user_id is None or user_id not in (_use_link(session, proof), _user_of_key(session, proof)):
        return None
    # Lock the session, so that two concurrent step-ups do not both replace it.
    before = select(console_sessions).where(console_sessions.c.id == session_id).with_for_update()
    old = session.execute(before).one()
    if not mark_disabled(session, console_sessions, console_sessions.c.revoked_at, session_id):
        return None
    made = _begin(session, user_id, organization_id=old.organization_id, expires_at=old.expires_at)
    record(session, actor, "console_session.stepped_up", made.id)
    return made


def sign_out(session: Session, *, actor: Actor) -> None:
    """Revoke the acting session."""
    session_id = actor.caller.credential_id
    if mark_disabled(session, console_sessions, console_sessions.c.revoked_at, session_id):
        record(session, actor, "console_session.ended", session_id)


def sign_out_everywhere(session: Session, *, actor: Actor, user_id: UUID) -> int:
    """Revoke all sessions and unused sign-in links of a user, for that user or an operator.

    Return the number of sessions. Raises PermissionDenied.
    """
    if actor.user_id != user_id:
        authorize_operation(actor)
    sessions, links = end_sessions(session, user_id)
    if sessions or links:
        record(session, actor, "console_session.ended", user_id, resource_kind="user", sessions=sessions)
    return sessions


def end_sessions(session: Session, user_id: UUID) -> tuple[int, int]:
    """Revoke all sessions and unused sign-in links of a user. Return how many of each. The caller authorizes."""
    # Revoke links too: an unused link would start a new session.
    unused = console_links.c.user_id == user_id, console_links.c.used_at.is_(None)
    links = session.execute(update(console_links).where(*unused).values(used_at=func.now())).rowcount
    live = console_sessions.c.user_id == user_id, console_sessions.c.revoked_at.is_(None)
    sessions = session.execute(update(console_sessions).where(*live).values(revoked_at=func.now())).rowcount
    return int(sessions), int(links)


def select_session_organization(session: Session, *, actor: Actor, organization_id: UUID) -> None:
    """Select the organization that a session acts in.

    Raises PermissionDenied for an API key, and ResourceNotFound unless the user is a member.
    """
    if actor.caller.proof is None or not actor.caller.proof.is_session:
        raise PermissionDenied("Only a console session can select an organization for itself.")
    belongs = exists().where(
        memberships.c.user_id == console_sessions.c.user_id, memberships.c.organization_id == organization_id
    )
    # Use one conditional update, so that the session does not select an organization whose membership ends
    # concurrently.
    this = console_sessions.c.id == actor.caller.credential_id
    changed = update(console_sessions).where(this, belongs).values(organization_id=organization_id)
    if session.execute(changed).rowcount == 0:
        raise ResourceNotFound


def find_operator(session: Session) -> UUID | None:
    """Return the id of the enabled operator that was created first, or None."""
    of_operators = users.c.is_operator, users.c.disabled_at.is_(None)
    found: UUID | None = session.execute(
        select(users.c.id).where(*of_operators).order_by(users.c.id).limit(1)
    ).scalar()
    return found


def read_user_and_organization_names(
    session: Session, user_id: UUID, organization_id: UUID | None
) -> tuple[str, str | None]:
    """Return a user's e-mail address and the name of their organization, for the header of every page."""
    name = select(organizations.c.name).where(organizations.c.id == organization_id).scalar_subquery()
    row = session.execute(select(users.c.email, name.label("name")).where(users.c.id == user_id)).one()
    return row.email, row.name


def _use_link(session: Session, code: str) -> UUID | None:
    if not is_well_formed(code, Prefix.CONSOLE_LINK):
        return None
    enabled = exists().where(users.c.id == console_links.c.user_id, users.c.disabled_at.is_(None))
    # Check and mark the link in one conditional update, so that only one of two concurrent uses succeeds.
    used = (
        update(console_links)
        .where(
            console_links.c.token_hash == hash_secret(code),
            console_links.c.used_at.is_(None),
            console_links.c.expires_at > func.now(),
            enabled,
        )
        .values(used_at=func.now())
        .returning(console_links.c.user_id)
    )
    user_id: UUID | None = session.execute(used).scalar_one_or_none()
    return user_id


def _user_of_key(session: Session, key: str) -> UUID | None:
    """Return the user of a live unbound API key, or None."""
    # Refuse a bound key: it authorizes for one organization only, and a session acts in any organization of the
    # user.
    if not is_well_formed(key, Prefix.API_KEY):
        return None
    found = find_live_api_key(session, hash_secret(key))
    return found.user_id if found is not None and found.bound_organization_id is None else None


def _begin(
    session: Session,
    user_id: UUID,
    *,
    organization_id: UUID | None = None,
    expires_at: datetime | None = None,
) -> NewSession:
    token, session_id = issue(Prefix.CONSOLE_SESSION), new_id()
    session.execute(
        insert(console_sessions).values(
            id=session_id,
            user_id=user_id,
            organization_id=organization_id,
            hash=token.hash,
            expires_at=expires_at or func.now() + LONGEST,
        )
    )
    return NewSession(id=session_id, token=token)


def _actor(user_id: UUID, session_id: UUID, request_id: str | None, client_address: str | None) -> Actor:
    caller = Caller(
        executor=Executor(kind=ExecutorKind.USER, id=user_id),
        credential_id=session_id,
        organization_id=None,
        owner=None,
        payer_id=None,
    )
    return administrator(caller, request_id, client_address)
