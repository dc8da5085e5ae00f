"""The sign-in links of one person. Each begins one session, also if two browsers use it at once or it is used again.

A lost response may cost the link, but never gives one session to two browsers.
"""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TypeVar
from uuid import UUID

import requests
from sqlalchemy import func, update

from shared.db.database import Session
from shared.errors import ServiceUnavailable
from shared.identity.access.authorization import OPERATOR
from shared.identity.authentication.credential_statements import STEP_UP
from shared.identity.console_tables import console_sessions
from shared.identity.sign_in.console_sessions import issue_link, sign_out_everywhere
from tests.chaos.console.browser import ConsoleBrowser, cookie_in, leads_to
from tests.chaos.console.records import Link
from tests.chaos.installation import Installation
from tests.chaos.retrying_client import GIVE_UP_SECONDS, NoDefiniteResponse

LINKS_KEPT = 20
RETRY_SECONDS = 0.05
Given = TypeVar("Given")


class Links:
    """The links that operators issue to one person."""

    def __init__(
        self, installation: Installation, browsing: ConsoleBrowser, user_id: UUID, chance: random.Random
    ) -> None:
        self._database = installation.database
        self._observations = installation.observations
        self._browsing = browsing
        self._user_id = user_id
        self._random = chance
        self._pool = ThreadPoolExecutor(2)
        self._issued: list[Link] = []

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def issue(self) -> Link:
        """Issue a link, as the operators' command does."""
        issued = self._in_database(
            lambda session: issue_link(session, actor=OPERATOR, user_id=self._user_id).code.value
        )
        self._issued = [*self._issued[-LINKS_KEPT:], Link(code=issued)]
        return self._issued[-1]

    def use(self, link: Link) -> str | None:
        """Use a valid link until its effect is known. Return a session, or None if a response was lost."""
        while True:
            answer = self._browsing.sign_in(link.code)
            cookie = self._judge(link, answer)
            if answer is None:
                continue
            self._require(link.is_doubtful or cookie is not None, "a good link was refused")
            return cookie

    def race(self) -> list[str]:
        """Use one link in two browsers at once, and return the sessions: at most one."""
        link = self.issue()
        answers = list(self._pool.map(self._browsing.sign_in, [link.code, link.code]))
        cookies = [cookie for answer in answers if (cookie := self._judge(link, answer))]
        if not cookies:
            self._require(link.is_doubtful, "a link: neither of two who used it at once was let in")
            cookies = [cookie] if (cookie := self.use(link)) else []
        return cookies

    def use_again(self) -> str | None:
        """Use a link again. Return the session if the result of its first use was unknown."""
        if not self._issued:
            return None
        link = self._random.choice(self._issued)
        return self._judge(link, self._browsing.sign_in(link.code))

    def use_after_the_end(self, link: Link) -> str | None:
        """Use a link that expired unused, and return the session, which it must not begin."""
        # The link counts as used, so that any session it begins is a violation.
        link.sessions, link.is_doubtful = 1, False
        return self._judge(link, self._browsing.sign_in(link.code))

    def end_all(self) -> None:
        """End all sessions of the person, as the operators' command does."""
        self._in_database(lambda session: sign_out_everywhere(session, actor=OPERATOR, user_id=self._user_id))

    def age_proofs(self) -> None:
        """Age the last authentication of each of the person's sessions past the re-authentication interval."""
        mine = console_sessions.c.user_id == self._user_id
        aged = update(console_sessions).where(mine).values(stepped_up_at=func.now() - STEP_UP)
        self._in_database(lambda session: session.execute(aged))

    def _judge(self, link: Link, answer: requests.Response | None) -> str | None:
        """Check the response to a link and return its session. A link begins at most one."""
        if answer is None:
            link.is_doubtful = True
            return None
        if answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY:
            return None
        cookie = cookie_in(answer)
        if cookie is None or not leads_to(answer, "/console"):
            self._observations.violate(f"signing in: {answer.status_code} {answer.text[:500]}")
            return None
        self._require(
            link.sessions == 0, "a link was used again: it was good for one session, and began another"
        )
        link.sessions += 1
        self._observations.acknowledge("sign-in")
        return cookie

    def _in_database(self, act: Callable[[Session], Given]) -> Given:
        """Run what the command does on a host of the service, and retry until the database responds."""
        gives_up_at = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < gives_up_at:
            try:
                with self._database.transaction() as session:
                    return act(session)
            except ServiceUnavailable:
                time.sleep(RETRY_SECONDS)
        raise NoDefiniteResponse("the database did not answer")

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            self._observations.violate(what)
