"""A distribution that pushes attachments, each push twice, and remembers what was acknowledged."""

import hashlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg2
import requests

from tests.chaos.installation import Installation
from tests.chaos.media.attachments import PAGE, Offer, Offers
from tests.chaos.media.servers import signature
from tests.chaos.retrying_client import ATTEMPT_SECONDS, NoDefiniteResponse, Send, recording_failure
from tests.support.agents.rest_clients import Client
from tests.support.data.inventory import query
from tests.support.data.media_sources import MediaSource

BREATH_SECONDS = 0.05
VERIFIED = 20
_AGE = """
WITH aged AS (UPDATE files SET retention_expires_at = now() WHERE id = %s AND state = 'Available' RETURNING id)
UPDATE expiring_media SET expires_at = now() FROM aged WHERE file_id = aged.id
"""


@dataclass(kw_only=True)
class Pushed:
    """An acknowledged import, and its expected result."""

    import_id: str
    message_id: str
    offer: Offer
    file_id: str | None = None
    is_aged: bool = False


class Distribution:
    """A distribution with its token and secret."""

    def __init__(self, installation: Installation) -> None:
        self._credentials: Mapping[str, str] = installation.credentials["distribution"]
        self.webhook_secret = self._credentials["webhookSecret"]

    @property
    def path(self) -> str:
        """Return the path of its media."""
        return f"/distributions/{self._credentials['id']}/media"

    @property
    def endpoint_path(self) -> str:
        """Return the path that configures its notification endpoint."""
        return f"/admin/distributions/{self._credentials['id']}/notification-endpoint"

    def push(self, front: str, body: object, *, is_signed: bool) -> requests.Response:
        """Push JSON, authenticated by the token or by a signature."""
        raw = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **(self._signed(raw) if is_signed else self._token())}
        return requests.post(front + self.path, raw, headers=headers, timeout=ATTEMPT_SECONDS)

    def push_form(self, front: str, message_id: str, offer: Offer) -> requests.Response:
        """Push the bytes themselves."""
        fields = {"messageId": message_id, "attachmentId": offer.attachment_id}
        part = {"file": (offer.file_name, offer.body, offer.media_type)}
        return requests.post(
            front + self.path, data=fields, files=part, headers=self._token(), timeout=ATTEMPT_SECONDS
        )

    def read(self, front: str, import_id: str) -> requests.Response:
        """Read an import."""
        url = f"{front}{self.path}/{import_id}"
        return requests.get(url, headers=self._token(), timeout=ATTEMPT_SECONDS)

    def _token(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._credentials['token']}", "Connection": "close"}

    def _signed(self, body: bytes) -> dict[str, str]:
        webhook_id, timestamp = f"push-{hashlib.sha256(body).hexdigest()[:16]}", str(int(time.time()))
        signed = signature(self.webhook_secret, webhook_id, timestamp, body)
        headers = {"webhook-id": webhook_id, "webhook-timestamp": timestamp, "webhook-signature": signed}
        return {**headers, "Connection": "close"}


class MediaClient:
    """A client thread of a distribution."""

    def __init__(self, installation: Installation, name: str, source: MediaSource, owner: Client) -> None:
        self._random = installation.chance(name)
        self._offers = Offers(self._random, source)
        self._distribution = Distribution(installation)
        self._stack = installation.stack
        self._retrying_client = installation.retrying_client
        self._observations = installation.observations
        self._owner = owner
        self._pool = ThreadPoolExecutor(1)
        self.pushed: list[Pushed] = []

    def run_until(self, over: threading.Event) -> None:
        """Push one message after another until the run is over; finish the one that has begun."""
        actions = {
            self._push_one: 6,
            self._push_several: 3,
            self._push_bytes: 4,
            self._push_a_disguise: 1,
            self._push_another_under_its_name: 1,
            self._read: 4,
            self._let_time_pass: 1,
        }
        try:
            with recording_failure(self._observations, "a distribution"):
                while not over.is_set():
                    self._random.choices(list(actions), list(actions.values()))[0]()
                    time.sleep(BREATH_SECONDS)
        finally:
            self._pool.shutdown()

    def verify(self) -> None:
        """Check some pushes from the view of the distribution and of the files' owner."""
        try:
            for pushed in self._random.sample(self.pushed, min(VERIFIED, len(self.pushed))):
                self._verify(pushed)
        except NoDefiniteResponse as error:
            self._observations.violate(str(error))

    def _push_one(self) -> None:
        message_id, offer = self._offers.new_id(), self._offers.by_url()
        body = {"messageId": message_id, **offer.item()}
        self._push(message_id, [offer], self._json(body))

    def _push_several(self) -> None:
        message_id = self._offers.new_id()
        offers = [self._offers.by_url() for _ in range(self._random.randint(2, 4))]
        body = {"messageId": message_id, "items": [offer.item() for offer in offers]}
        self._push(message_id, offers, self._json(body))

    def _push_bytes(self) -> None:
        message_id, offer = self._offers.new_id(), self._offers.by_value()
        self._push(message_id, [offer], lambda front: self._distribution.push_form(front, message_id, offer))

    def _push_a_disguise(self) -> None:
        """Push an HTML page declared as an image, and check that it is refused without effect."""
        name = self._offers.new_id()
        offer = Offer(attachment_id=name, body=PAGE, media_type="image/png", file_name="a.png")
        answer = self._ask(lambda front: self._distribution.push_form(front, name, offer))
        self._require(answer.status_code == 422, f"a page as a picture: {answer.status_code} {answer.text}")

    def _push_another_under_its_name(self) -> None:
        """Push other content under ids in use, and check that the first import is unchanged."""
        taken = [at for at in self.pushed if at.offer.url]
        if not taken:
            return
        pushed = self._random.choice(taken)
        item = {**pushed.offer.item(), "fileName": "another.bin"}
        answer = self._ask(self._json({"messageId": pushed.message_id, **item}))
        self._require(
            answer.status_code == 409, f"another under its name: {answer.status_code} {answer.text}"
        )

    def _read(self) -> None:
        if self.pushed:
            self._look_at(self._random.choice(self.pushed))

    def _let_time_pass(self) -> None:
        """Move the retention deadline of a stored file into the past."""
        stored = [at for at in self.pushed[-50:] if at.file_id is not None and not at.is_aged]
        if not stored:
            return
        pushed = self._random.choice(stored)
        pushed.is_aged = True
        while True:
            try:
                query(self._stack, _AGE, (pushed.file_id,))
            except psycopg2.OperationalError:
                time.sleep(BREATH_SECONDS)
            else:
                return

    def _push(self, message_id: str, offers: Sequence[Offer], send: Send) -> None:
        """Push everything twice, often concurrently, and check that both responses name the same imports."""
        second = self._pool.submit(self._ask, send)
        answers = [self._ask(send), second.result()]
        for answer in answers:
            if answer.status_code != 202:
                return self._observations.violate(f"push {message_id}: {answer.status_code} {answer.text}")
        shown = [_imports(answer.json()) for answer in answers]
        for offer, *imports in zip(offers, *shown, strict=True):
            ids = {at["importId"] for at in imports}
            self._require(len(ids) == 1, f"push {message_id}/{offer.attachment_id} made {len(ids)} imports")
            self._require(
                sum(not at["replayed"] for at in imports) <= 1, f"push {message_id} was first twice"
            )
            self._observations.acknowledge("attachment")
            pushed = Pushed(import_id=ids.pop(), message_id=message_id, offer=offer)
            self.pushed.append(pushed)
            if not offer.url:
                self._require(imports[0]["state"] == "Stored", f"pushed bytes are {imports[0]['state']}")
        return None

    def _look_at(self, pushed: Pushed) -> dict[str, Any]:
        """Read an import, and check that a final result never changes."""
        answer = self._ask(lambda front: self._distribution.read(front, pushed.import_id))
        if answer.status_code != 200:
            self._observations.violate(f"import {pushed.import_id}: {answer.status_code} {answer.text}")
            return {}
        shown: dict[str, Any] = answer.json()
        failure = pushed.offer.failure
        self._observations.count_read(f"import {shown['state']}")
        if shown["state"] == "Stored":
            self._require(failure is None, f"import {pushed.import_id} was to fail with {failure}")
            self._require(
                pushed.file_id in (None, shown["fileId"]), f"import {pushed.import_id} became another file"
            )
            pushed.file_id = shown["fileId"]
        if shown["state"] == "Failed":
            self._require(
                shown["code"] == failure, f"import {pushed.import_id} failed: {shown['code']}, not {failure}"
            )
        return shown

    def _verify(self, pushed: Pushed) -> None:
        shown = self._look_at(pushed)
        expected = "Stored" if pushed.offer.failure is None else "Failed"
        self._require(shown.get("state") == expected, f"import {pushed.import_id} is not {expected}: {shown}")
        if shown.get("state") != "Stored":
            return
        content = self._ask(
            lambda front: self._owner.download(shown["fileId"], shown["versionId"], via=front)
        )
        if pushed.is_aged:
            self._require(content.status_code == 410, f"expired media answers {content.status_code}")
        else:
            digest = hashlib.sha256(content.content).hexdigest()
            self._require(
                content.status_code == 200 and digest == pushed.offer.sha256,
                f"media of import {pushed.import_id}: {content.status_code} with other bytes",
            )

    def _json(self, body: Mapping[str, Any]) -> Send:
        is_signed = self._random.random() < 0.3
        return lambda front: self._distribution.push(front, body, is_signed=is_signed)

    def _ask(self, send: Send) -> requests.Response:
        return self._retrying_client.ask("push", send)

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            self._observations.violate(what)


def _imports(shown: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the imports in the response to a push of one or several attachments."""
    items: list[dict[str, Any]] = shown["items"] if "items" in shown else [dict(shown)]
    return items
