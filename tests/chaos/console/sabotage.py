"""Sabotage of the console: each function breaks one rule in this process."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import delete, select

from shared.db.database import Session
from shared.identity.access.authorization import Actor
from shared.identity.authentication import authenticator, credential_lookup
from shared.identity.authentication.authenticator import Authenticator
from shared.identity.authentication.credential_lookup import LiveSession
from shared.identity.authentication.credential_types import Credential
from shared.identity.console_tables import console_links
from shared.identity.credentials import api_keys
from shared.identity.credentials.api_keys import IssuedApiKey
from shared.identity.secrets import hash_secret
from shared.identity.sign_in import console_sessions
from shared.identity.tables import api_keys as api_keys_table
from web.console.pages import sign_in


def reuse_links() -> None:
    """Let a link begin any number of sessions."""

    def look_up(session: Session, code: str) -> UUID | None:
        of_code = console_links.c.token_hash == hash_secret(code)
        user_id: UUID | None = session.execute(select(console_links.c.user_id).where(of_code)).scalar()
        return user_id

    setattr(console_sessions, "_use_link", look_up)  # noqa: B010 (the module does not export the name)


def keep_sessions() -> None:
    """Report that a session has ended, and leave it live."""

    def end_nothing(session: Session, *, actor: Actor) -> None:
        del session, actor

    setattr(sign_in, "sign_out", end_nothing)  # noqa: B010 (a name it does not export)


def remember_sessions() -> None:
    """Cache a session for the life of the process, without checking its row again."""
    authenticate = Authenticator.authenticate_session
    known: dict[str, Credential] = {}

    def authenticate_once(self: Authenticator, token: str) -> Credential:
        if token not in known:
            known[token] = authenticate(self, token)
        return known[token]

    setattr(Authenticator, "authenticate_session", authenticate_once)  # noqa: B010 (mypy objects to an assignment)


def trust_old_proofs() -> None:
    """Never demand re-authentication."""
    find = credential_lookup.find_live_session

    def find_as_proven(session: Session, digest: bytes) -> LiveSession | None:
        found = find(session, digest)
        return None if found is None else replace(found, has_stepped_up=True)

    setattr(authenticator, "find_live_session", find_as_proven)  # noqa: B010 (the module does not export the name)


def forget_keys() -> None:
    """Show a new key without storing it."""
    issue = api_keys.issue_api_key

    def issue_for_a_look(session: Session, **asked: Any) -> IssuedApiKey:
        issued = issue(session, **asked)
        session.execute(delete(api_keys_table).where(api_keys_table.c.id == issued.key.id))
        return issued

    setattr(api_keys, "issue_api_key", issue_for_a_look)  # noqa: B010 (ruff would write it so that mypy objects)
