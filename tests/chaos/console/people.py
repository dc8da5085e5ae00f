"""People who use the console: each signs in, opens pages, creates keys, and signs out or is signed out.

Each person does one thing at a time, so that every session is known to be live or ended. If a response was lost, the
person repeats the request until the result is known, or ends the session. Only links are used concurrently.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from uuid import UUID

import requests

from shared.identity.authentication.credential_statements import STEP_UP as PROOF_LIFE
from shared.identity.directory.organizations import Organization
from tests.chaos.console.browser import SIGN_IN, ConsoleBrowser, cookie_in, leads_to, secret_in
from tests.chaos.console.links import Links
from tests.chaos.console.records import Key, OpenSession, Records
from tests.chaos.installation import Installation
from tests.chaos.retrying_client import NoDefiniteResponse, recording_failure
from tests.support.data.identity import Person
from tests.support.web.browser import token_in

BREATH_SECONDS = 0.05
SESSIONS_KEPT, KEYS_KEPT = 5, 10
LAST_KEYS = 20
ENDED_VERIFIED = 50
CACHED_SECONDS = 5.0
"""For so long a front may trust a credential that was revoked (docs/specification/identity.md)."""
LATE_SECONDS = 120.0
"""By how much an answer may come later than what it tells of."""
CHOICES, KEYS, STEP_UP, OUT = "/console/organizations", "/console/keys", "/console/step-up", "/console/out"
PAGES = (CHOICES, KEYS, "/console/files", "/console/activity")


class Visitor:
    """One person, in one client thread."""

    def __init__(
        self,
        installation: Installation,
        number: int,
        person: Person,
        organizations: tuple[Organization, Organization],
    ) -> None:
        name = f"console/{number}"
        self._random = installation.chance(name)
        self._browsing = ConsoleBrowser(installation, installation.chance(f"{name}/fronts"))
        self._installation = installation
        self._observations = installation.observations
        self._operator = installation.owner()
        self._person = person
        self._organizations = organizations
        self._is_strict = not installation.loses_links
        self._links = Links(installation, self._browsing, person.user_id, self._random)
        self.records = Records()

    @property
    def user_id(self) -> UUID:
        """Return the id of the person."""
        return self._person.user_id

    def run_until(self, over: threading.Event) -> None:
        """Act until the run is over; finish what has begun."""
        actions: dict[Callable[[], None], int] = {
            self._sign_in: 8,
            self._race: 4,
            self._use_again: 3,
            self._visit: 16,
            self._visit_after_the_end: 8,
            self._choose: 4,
            self._step_up: 4,
            self._let_proofs_age: 1,
            self._make_key: 6,
            self._forge: 2,
            self._use_key: 6,
            self._revoke_key: 3,
            self._sign_out: 3,
            self._be_signed_out: 1,
            self._be_disabled: 1,
        }
        try:
            with recording_failure(self._observations, "a visitor"):
                while not over.is_set():
                    self._random.choices(list(actions), list(actions.values()))[0]()
                    time.sleep(BREATH_SECONDS)
        finally:
            self._links.close()

    def verify(self) -> None:
        """Check every session and key in every web process, after all faults have ended."""
        revoked = [key.revoked_at for key in self.records.keys if key.revoked_at is not None]
        time.sleep(max(0.0, max(revoked, default=0.0) + CACHED_SECONDS + BREATH_SECONDS - time.time()))
        try:
            for front in self._installation.fronts:
                for session in list(self.records.live):
                    self._look(session, PAGES[0], via=front)
                for session in self.records.ended[-ENDED_VERIFIED:]:
                    self._look_in_vain(session, via=front)
                for key in self.records.keys:
                    self._try(key, via=front)
        except NoDefiniteResponse as error:
            self._observations.violate(str(error))

    def _sign_in(self) -> None:
        if len(self.records.live) >= SESSIONS_KEPT:
            return self._sign_out()
        return self._enter(self._links.use(self._links.issue()))

    def _race(self) -> None:
        for cookie in self._links.race():
            self._enter(cookie)

    def _use_again(self) -> None:
        self._enter(self._links.use_again())

    def _visit(self) -> None:
        if (session := self._any_live()) is not None:
            self._look(session, self._random.choice(PAGES))

    def _visit_after_the_end(self) -> None:
        if self.records.ended:
            self._look_in_vain(self._random.choice(self.records.ended[-ENDED_VERIFIED:]))

    def _choose(self) -> None:
        if (session := self._any_live()) is not None:
            self._look_at_organization(session, self._random.choice(self._organizations))

    def _step_up(self) -> None:
        """Re-authenticate: a new session replaces the old one."""
        if (session := self._any_live()) is None:
            return None
        link = self._links.issue()
        answer = self._browsing.submit_once(STEP_UP, session, proof=link.code, next=CHOICES)
        if answer is None:
            return self._end(session)  # If a successor session exists, its cookie is unknown.
        cookie = cookie_in(answer)
        if not leads_to(answer, CHOICES) or cookie is None:
            return self._observations.violate(f"proving who one is: {answer.status_code} {answer.text[:500]}")
        self.records.end(session)
        self._observations.acknowledge("step-up")
        link.sessions += 1
        return self._enter(cookie, organization=session.organization)

    def _let_proofs_age(self) -> None:
        """Simulate ten minutes: every session must re-authenticate before it creates a key."""
        self._links.age_proofs()
        self.records.age_proofs()
        self._observations.acknowledge("proof aged")
        self._make_key()

    def _must_prove(self, session: OpenSession, answer: requests.Response) -> bool:
        """Return whether a response demands re-authentication: ten minutes after the last one, and not earlier."""
        is_asked = leads_to(answer, STEP_UP)
        seconds_over = time.time() - session.proven_at - PROOF_LIFE.total_seconds()
        if abs(seconds_over) > LATE_SECONDS:
            is_due = seconds_over > 0
            self._require(
                is_asked is is_due, f"asked to prove who one is: {is_asked}, and it was {is_due} to be"
            )
        return is_asked

    def _make_key(self) -> None:
        """Create a key, once. If the response is lost, the key may or may not exist."""
        live = [key for key in self.records.keys if key.revoked_at is None]
        if (session := self._any_live()) is None or len(live) >= KEYS_KEPT:
            return
        name = self._new_name()
        self.records.lost_keys.add(name)
        answer = self._browsing.submit_once(KEYS, session, name=name, ends="90", bound="yes")
        if answer is None:
            return
        self.records.lost_keys.remove(name)
        if self._must_prove(session, answer):
            return
        if answer.status_code != HTTPStatus.OK:
            self._observations.violate(f"making a key: {answer.status_code} {answer.text[:500]}")
            return
        key = Key(name=name, secret=secret_in(answer.text))
        self.records.keys.append(key)
        self._observations.acknowledge("key")
        self._try(key)

    def _forge(self) -> None:
        """Submit a form with another session's token, and check that it has no effect."""
        if (session := self._any_live()) is not None:
            foreign = replace(session, csrf=f"{self._random.getrandbits(256):064x}")
            answer = self._browsing.submit(KEYS, foreign, name=self._new_name(), ends="90", bound="yes")
            self._require(answer.status_code == HTTPStatus.FORBIDDEN, f"a forged form: {answer.status_code}")

    def _use_key(self) -> None:
        if self.records.keys:
            self._try(self._random.choice(self.records.keys[-LAST_KEYS:]))

    def _revoke_key(self) -> None:
        live = [key for key in self.records.keys if key.id and key.revoked_at is None]
        if (session := self._any_live()) is None or not live:
            return
        key = self._random.choice(live)
        answer = self._browsing.submit(f"{KEYS}/{key.id}/revoke", session, name=key.name)
        if self._must_prove(session, answer):
            return
        key.revoked_at = time.time()
        self._observations.acknowledge("revocation")
        self._require(leads_to(answer, KEYS), f"revoking a key: {answer.status_code} {answer.text[:500]}")

    def _sign_out(self) -> None:
        if (session := self._any_live()) is not None:
            self._end(session)
            self._observations.acknowledge("sign-out")

    def _be_signed_out(self) -> None:
        """Have an operator end all sessions and unused links."""
        link = self._links.issue()
        self._links.end_all()
        self.records.end_all()
        self._observations.acknowledge("sign-out everywhere")
        self._enter(self._links.use_after_the_end(link))

    def _be_disabled(self) -> None:
        """Have an operator disable and re-enable the person; earlier sessions remain ended."""
        if not self._is_strict:  # A delayed request may disable the person again.
            return
        link = self._links.issue()
        self._switch("disable")
        self.records.end_all()
        self._visit_after_the_end()
        self._enter(self._links.use_after_the_end(link))
        self._switch("enable")
        self._observations.acknowledge("disabling")
        self._enter(self._links.use_after_the_end(link))

    def _switch(self, act: str) -> None:
        path = f"/admin/users/{self.user_id}/{act}"
        answer = self._installation.retrying_client.ask(
            path, lambda front: self._operator.request("POST", path, via=front)
        )
        self._require(answer.ok, f"{path}: {answer.status_code} {answer.text}")

    def _enter(self, cookie: str | None, *, organization: str | None = None) -> None:
        """Open pages in a new session; a replacement session shows the same organization as its predecessor."""
        if cookie is None:
            return
        page = self._browsing.open(CHOICES, OpenSession(cookie=cookie, csrf=""))
        if page.status_code != HTTPStatus.OK:
            self._observations.violate(f"a session that has just begun: {page.status_code}")
            return
        session = OpenSession(cookie=cookie, csrf=token_in(page.text))
        self.records.live.append(session)
        if organization is None:
            self._look_at_organization(session, self._random.choice(self._organizations))
        else:
            session.organization = organization
            self._look(session, CHOICES)

    def _look_at_organization(self, session: OpenSession, chosen: Organization) -> None:
        answer = self._browsing.submit(CHOICES, session, organization=str(chosen.id))
        self._require(
            leads_to(answer, "/console"),
            f"choosing an organization: {answer.status_code} {answer.text[:500]}",
        )
        session.organization = chosen.name
        self._look(session, CHOICES)

    def _look(self, session: OpenSession, path: str, *, via: str | None = None) -> None:
        """Open a page in a live session, and check that it belongs to this person."""
        page = self._browsing.open(path, session, via=via)
        self._observations.count_read("page")
        if page.status_code != HTTPStatus.OK:
            self._observations.violate(
                f"a live session was not let in to {path}: {page.status_code} {page.headers}"
            )
            return
        self._require(f"<bdi>{self._person.email}</bdi>" in page.text, "a session shows somebody else")
        if self._is_strict:
            is_there = f"<b><bdi>{session.organization}</bdi></b>" in page.text
            self._require(is_there, f"a session does not look at {session.organization}, which was chosen")

    def _look_in_vain(self, session: OpenSession, *, via: str | None = None) -> None:
        page = self._browsing.open(self._random.choice(PAGES), session, via=via)
        self._observations.count_read("page after the end")
        self._require(leads_to(page, SIGN_IN), f"an ended session was let in: {page.status_code}")

    def _try(self, key: Key, *, via: str | None = None) -> None:
        """Use a key: it works once created, and stops once its revocation has reached every web process."""
        client = self._installation.client(key.secret)
        answer, asked_at = self._installation.retrying_client.ask_when(
            "key", lambda front: client.request("GET", "/v1/key", via=via or front)
        )
        self._observations.count_read("key")
        if key.revoked_at is None:
            shown = answer.json().get("data", {})
            works = answer.status_code == HTTPStatus.OK and shown["label"] == key.name
            self._require(works, f"a key that was made: {answer.status_code} {answer.text}")
            key.id = shown.get("id", "")
        elif asked_at - key.revoked_at > CACHED_SECONDS:
            is_refused = answer.status_code == HTTPStatus.UNAUTHORIZED
            self._require(is_refused, f"a key that was revoked: {answer.status_code} {answer.text}")

    def _end(self, session: OpenSession) -> None:
        answer = self._browsing.submit(OUT, session)
        self.records.end(session)
        self._require(leads_to(answer, SIGN_IN), f"signing out: {answer.status_code} {answer.text[:500]}")

    def _any_live(self) -> OpenSession | None:
        return self._random.choice(self.records.live) if self.records.live else None

    def _new_name(self) -> str:
        return f"key {self._random.getrandbits(64):x}"

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            self._observations.violate(what)
