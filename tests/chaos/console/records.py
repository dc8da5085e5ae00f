"""What people of the console remember: links, sessions and keys; and the comparison with the rows.

A link is marked as used in the transaction that begins the session. Both have the same timestamp, which maps each
session to the one link that began it.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shared.identity.secrets import hash_secret
from shared.identity.sign_in.console_sessions import LINK_LIFE
from tests.support.data.inventory import query
from tests.support.processes.stack import Stack

_SESSIONS = """
SELECT s.hash, s.revoked_at IS NOT NULL, count(l.id), s.created_at > now() - %s,
    (SELECT count(*) FROM console_sessions t WHERE t.user_id = s.user_id AND t.created_at = s.created_at)
FROM console_sessions s LEFT JOIN console_links l ON l.user_id = s.user_id AND l.used_at = s.created_at
WHERE s.user_id = %s::uuid GROUP BY s.id
"""
_KEYS = (
    "SELECT name, count(*), bool_or(revoked_at IS NOT NULL) FROM api_keys WHERE user_id = %s::uuid GROUP BY 1"
)


@dataclass(kw_only=True)
class Link:
    """A sign-in link and the responses to its code; `is_doubtful` if a response was lost."""

    code: str
    sessions: int = 0
    is_doubtful: bool = False


@dataclass(kw_only=True)
class OpenSession:
    """A session that was acknowledged: its cookie, its form token, and its current organization."""

    cookie: str
    csrf: str
    organization: str | None = None
    proven_at: float = field(default_factory=time.time)
    """When its user proved who they are, in seconds since the epoch."""


@dataclass(kw_only=True)
class Key:
    """An API key that the console has shown."""

    name: str
    secret: str
    id: str = ""
    revoked_at: float | None = None


@dataclass(kw_only=True)
class Records:
    """The records of one person."""

    live: list[OpenSession] = field(default_factory=list)
    ended: list[OpenSession] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    lost_keys: set[str] = field(default_factory=set)
    """Names of keys whose making was not answered: each was made once or not at all."""

    def end_all(self) -> None:
        """Record that every session has ended."""
        self.ended += self.live
        self.live.clear()

    def age_proofs(self) -> None:
        """Record that every session is due for re-authentication."""
        for session in self.live:
            session.proven_at = 0.0

    def end(self, session: OpenSession) -> None:
        """Record that a session has ended."""
        self.live.remove(session)
        self.ended.append(session)

    def compare(self, stack: Stack, user_id: str, given: Sequence[str]) -> Iterator[str]:
        """Yield differences from the rows; `given` are the names of keys that the user had before."""
        yield from self._compare_sessions(stack, user_id)
        yield from self._compare_keys(stack, user_id, given)

    def _compare_sessions(self, stack: Stack, user_id: str) -> Iterator[str]:
        rows = {bytes(row[0]): row[1:] for row in query(stack, _SESSIONS, (LINK_LIFE, user_id))}
        for _, links, is_new, twins in rows.values():
            is_swept = links == 0 and not is_new  # The service deletes expired links.
            if (links, twins) != (1, 1) and not (is_swept and twins == 1):
                yield f"a session of {user_id} began with {links} links, together with {twins - 1} others"
        for sessions, is_ended in ((self.live, False), (self.ended, True)):
            for session in sessions:
                row = rows.get(hash_secret(session.cookie))
                if row is None or row[0] is not is_ended:
                    yield f"a session of {user_id} that has {'ended' if is_ended else 'not ended'} is kept as {row}"

    def _compare_keys(self, stack: Stack, user_id: str, given: Sequence[str]) -> Iterator[str]:
        rows = {row[0]: row[1:] for row in query(stack, _KEYS, (user_id,))}
        for key in self.keys:
            found, expected = rows.pop(key.name, None), (1, key.revoked_at is not None)
            if found != expected:
                yield f"key {key.name} is kept as {found}, not {expected}"
        for name in rows.keys() & self.lost_keys:
            if rows.pop(name)[0] != 1:
                yield f"key {name} was made more than once"
        yield from (f"key {name} was made, and nobody asked for it" for name in rows.keys() - set(given))
