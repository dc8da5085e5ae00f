"""Clients that write, read and check files continuously, and retry unacknowledged writes under their operationId."""

import hashlib
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import requests

from tests.chaos.files.records import Link, Operations, StoredFile, StoredVersion
from tests.chaos.observations import Observations
from tests.chaos.retrying_client import (
    ATTEMPT_SECONDS,
    NoDefiniteResponse,
    RetryingClient,
    Send,
    recording_failure,
)
from tests.support.agents.rest_clients import Client, open_link

SIZES = (0, 1, 4_096, 50_000, 300_000, 2_000_000, 6_000_000)
SIZE_WEIGHTS = (1, 2, 10, 10, 4, 2, 1)
FILES_KEPT = 30
ENDED_KEPT = 100


class FileClient:
    """A client thread and the files it owns."""

    def __init__(
        self,
        chance: random.Random,
        agent: Client,
        owner: Client,
        operations: Operations,
        retrying_client: RetryingClient,
        observations: Observations,
    ) -> None:
        self._random = chance
        self._agent = agent
        self._owner = owner
        self._operations = operations
        self._retrying_client = retrying_client
        self._observations = observations
        self._pool = ThreadPoolExecutor(1)
        self.files: list[StoredFile] = []
        self.ended: list[StoredFile] = []

    def run_until(self, over: threading.Event) -> None:
        """Act until the run is over; finish what has begun."""
        actions = (
            self._upload,
            self._replace,
            self._race,
            self._delete,
            self._renew,
            self._grant,
            self._read,
        )
        weights = (6, 4, 1, 3, 2, 3, 8)
        try:
            with recording_failure(self._observations, "a client"):
                while not over.is_set():
                    self._random.choices(actions, weights)[0]()
                    self._put_away_ended()
        finally:
            self._pool.shutdown()

    def verify(self) -> None:
        """Check every file of this client, after all faults have ended."""
        try:
            for file in self.files + self.ended:
                self._verify(file)
        except NoDefiniteResponse as error:
            self._observations.violate(str(error))

    def _upload(self) -> None:
        if len(self.files) >= FILES_KEPT:
            return self._delete()
        content, operation = self._content(), self._operation()
        lifetime = self._random.choice((None, None, None, 1.0, 2.5, 5.0))
        deadline = None if lifetime is None else time.time() + lifetime
        query = {} if deadline is None else {"retentionExpiresAt": write_time(deadline)}

        def send(front: str) -> requests.Response:
            return self._agent.upload(content, operation=operation, via=front, **query)

        answers = (
            self._perhaps_twice(send) if deadline is None else [self._retrying_client.ask("upload", send)]
        )
        if deadline is not None and answers[0].status_code == 422 and time.time() > deadline:
            return self._operations.refuse(operation)
        version = self._accept("upload", operation, content, answers, statuses=(200, 201, 202))
        if version is not None:
            body = answers[0].json()
            self.files.append(StoredFile(id=body["id"], versions=[version], expires_at=deadline))
            self._require(version.revision == 1, f"upload {operation} made revision {version.revision}")
        return None

    def _replace(self) -> None:
        if (file := self._any_file()) is None:
            return
        content, operation = self._content(), self._operation()
        answers = self._perhaps_twice(self._replacement(file, content, operation))
        if self._is_excused(file, answers[0]):
            self._operations.refuse(operation)
        else:
            self._take_replacement(file, operation, content, answers)

    def _race(self) -> None:
        """Replace one version twice concurrently, and check that exactly one request succeeds."""
        if (file := self._any_file()) is None:
            return
        contents, operations = [self._content(), self._content()], [self._operation(), self._operation()]
        second = self._pool.submit(
            self._retrying_client.ask, "replace", self._replacement(file, contents[1], operations[1])
        )
        answers = [
            self._retrying_client.ask("replace", self._replacement(file, contents[0], operations[0])),
            second.result(),
        ]
        won = [number for number, answer in enumerate(answers) if answer.status_code == 200]
        for number in {0, 1} - set(won):
            self._operations.refuse(operations[number])
            lost = answers[number]
            self._require(
                lost.status_code == 412 or self._is_excused(file, lost), f"race lost with {lost.text}"
            )
        if not won and file.expires_at is not None:
            return
        self._require(len(won) == 1, f"{len(won)} of two replaces of {file.id} won")
        for number in won:
            self._take_replacement(file, operations[number], contents[number], [answers[number]])

    def _delete(self) -> None:
        if (file := self._any_file()) is None:
            return None
        operation = self._operation()
        answers = self._perhaps_twice(
            lambda front: self._owner.delete(file.id, operation=operation, via=front)
        )
        if self._is_excused(file, answers[0]):
            return self._operations.refuse(operation)
        for answer in answers:
            self._require(
                answer.status_code == 200, f"delete {operation}: {answer.status_code} {answer.text}"
            )
        if answers[0].status_code == 200:
            file.is_deleted = True
            self._observations.acknowledge("delete")
            self._operations.acknowledge(operation, file.current.id)
        return None

    def _renew(self) -> None:
        finite = [file for file in self.files if file.expires_at is not None]
        if not finite:
            return
        file = self._random.choice(finite)
        assert file.expires_at is not None
        deadline = self._random.choice((None, file.expires_at + 3.0))
        text = None if deadline is None else write_time(deadline)
        before, file.expires_at = file.expires_at, deadline
        answer = self._retrying_client.ask(
            "renewal", lambda front: self._agent.renew(file.id, text, via=front)
        )
        if answer.status_code == 200:
            self._observations.acknowledge("renewal")
            return
        file.expires_at = before
        self._require(file.has_ended(), f"renewal of {file.id}: {answer.status_code} {answer.text}")

    def _grant(self) -> None:
        if (file := self._any_file()) is None:
            return
        version = self._random.choice(file.versions)
        answer = self._retrying_client.ask(
            "grant", lambda front: self._agent.grant(file.id, version.id, via=front)
        )
        if answer.status_code == 201:
            self._observations.acknowledge("grant")
            body = answer.json()
            link = Link(url=body["url"], version=version, expires_at=read_time(body["accessExpiresAt"]))
            file.links = [*file.links[-5:], link]
        else:
            self._require(self._is_excused(file, answer), f"grant: {answer.status_code} {answer.text}")

    def _read(self) -> None:
        if (file := self._any_file(with_ended=True)) is None:
            return
        if file.links and self._random.random() < 0.4:
            self._check_link(file, self._random.choice(file.links))
        else:
            self._check_version(file, self._random.choice(file.versions))

    def _verify(self, file: StoredFile) -> None:
        for version in file.versions:
            self._check_version(file, version)
        for link in file.links:
            self._check_link(file, link)
        metadata = self._retrying_client.ask("read", lambda front: self._agent.read(file.id, via=front))
        if metadata.status_code != 200:
            return self._observations.violate(f"file {file.id} vanished: {metadata.status_code}")
        body = metadata.json()
        state = "Deleted" if file.is_deleted else "Expired" if file.has_ended() else "Available"
        expected = (state, file.current.id, file.current.revision, file.current.sha256)
        found = (body["availability"], body["versionId"], body["revision"], body["metadata"]["contentSha256"])
        return self._require(found == expected, f"file {file.id}: {found} instead of {expected}")

    def _check_version(self, file: StoredFile, version: StoredVersion) -> None:
        answer, asked_at = self._retrying_client.ask_when(
            "read", lambda front: self._agent.download(file.id, version.id, via=front)
        )
        self._check_content(version, answer, was_over=file.has_ended(asked_at), is_over=file.has_ended())

    def _check_link(self, file: StoredFile, link: Link) -> None:
        answer, asked_at = self._retrying_client.ask_when(
            "read", lambda front: open_link(link.url, via=front, timeout_seconds=ATTEMPT_SECONDS)
        )
        was_over = file.has_ended(asked_at) or link.expires_at <= asked_at
        is_over = file.has_ended() or link.expires_at <= time.time()
        self._check_content(link.version, answer, was_over=was_over, is_over=is_over)

    def _check_content(
        self, version: StoredVersion, answer: requests.Response, *, was_over: bool, is_over: bool
    ) -> None:
        """Compare a response with the stored content; it may be gone if the file ended before the response."""
        if answer.status_code == 200:
            self._observations.count_read("content")
            self._require(not was_over, f"version {version.id} was served after its end")
            digest = hashlib.sha256(answer.content).hexdigest()
            self._require(digest == version.sha256, f"version {version.id} came with other bytes")
        else:
            self._observations.count_read("gone")
            self._require(answer.status_code == 410 and is_over, f"version {version.id}: {answer.text}")

    def _take_replacement(
        self, file: StoredFile, operation: UUID, content: bytes, answers: Sequence[requests.Response]
    ) -> None:
        version = self._accept("replace", operation, content, answers, statuses=(200, 202))
        if version is not None:
            expected = file.current.revision + 1
            self._require(version.revision == expected, f"replace {operation} made {version.revision}")
            file.versions.append(version)

    def _accept(
        self,
        kind: str,
        operation: UUID,
        content: bytes,
        answers: Sequence[requests.Response],
        *,
        statuses: tuple[int, ...],
    ) -> StoredVersion | None:
        """Return the one version that all responses to an operation must name, and record the acknowledgement."""
        for answer in answers:
            if answer.status_code not in statuses:
                self._observations.violate(f"{kind} {operation}: {answer.status_code} {answer.text}")
                return None
        bodies = [answer.json() for answer in answers]
        version = _version_of(bodies[0])
        self._require(len({body["versionId"] for body in bodies}) == 1, f"{kind} {operation} had two effects")
        self._require(
            sum(not body["replayed"] for body in bodies) <= 1, f"{kind} {operation} was first twice"
        )
        digest = hashlib.sha256(content).hexdigest()
        self._require(version.sha256 == digest, f"{kind} {operation} recorded another digest")
        self._observations.acknowledge(kind)
        self._operations.acknowledge(operation, version.id)
        return version

    def _replacement(self, file: StoredFile, content: bytes, operation: UUID) -> Send:
        current = {"id": file.id, "versionId": file.current.id, "revision": file.current.revision}
        return lambda front: self._agent.replace(content, operation=operation, current=current, via=front)

    def _perhaps_twice(self, send: Send) -> list[requests.Response]:
        """Send a request; at random, send it twice concurrently, as an impatient client would."""
        if self._random.random() > 0.2:
            return [self._retrying_client.ask("write", send)]
        second = self._pool.submit(self._retrying_client.ask, "write", send)
        return [self._retrying_client.ask("write", send), second.result()]

    def _is_excused(self, file: StoredFile, answer: requests.Response) -> bool:
        return answer.status_code == 410 and file.has_ended()

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            self._observations.violate(what)

    def _any_file(self, *, with_ended: bool = False) -> StoredFile | None:
        choice = self.files + (self.ended[-10:] if with_ended else [])
        return self._random.choice(choice) if choice else None

    def _put_away_ended(self) -> None:
        self.ended += [file for file in self.files if file.has_ended()]
        self.files = [file for file in self.files if not file.has_ended()]
        del self.ended[:-ENDED_KEPT]

    def _content(self) -> bytes:
        return self._random.randbytes(self._random.choices(SIZES, SIZE_WEIGHTS)[0])

    def _operation(self) -> UUID:
        return UUID(bytes=self._random.randbytes(16), version=4)


def write_time(at: float) -> str:
    """Return a timestamp in the service's format."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def read_time(text: str) -> float:
    """Return a timestamp of the service in seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def _version_of(body: dict[str, Any]) -> StoredVersion:
    return StoredVersion(
        id=body["versionId"], revision=body["revision"], sha256=body["metadata"]["contentSha256"]
    )
