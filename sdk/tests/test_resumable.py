"""Resumable uploads continue at the service's offset, and are stored once."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pytest

from quartermaster import context, errors
from quartermaster._async import uploads as of_tasks
from quartermaster._sync import uploads as of_threads
from sdk.tests.forms import Connect
from sdk.tests.scripted_service import Answer, NoAnswer, Request, ScriptedService, problem, upload_body
from sdk.tests.test_context import make_context

pytestmark = pytest.mark.usefixtures("short_pauses")
CONTENT = os.urandom(3_000_000)


class ResumableScript:
    """Receives content as the service does, and fails as planned: at a PATCH, after a number of bytes, in a way."""

    def __init__(self, plan: dict[int, tuple[int, Any]] | None = None) -> None:
        self.plan = plan or {}
        self.kept = b""
        self.is_stored = False
        self.seen: Counter[str] = Counter()
        self.begun: Request | None = None

    def __call__(self, request: Request) -> Answer:
        self.seen[request.method] += 1
        if request.method == "PATCH":
            return self.append(request)
        if request.method == "HEAD":
            return Answer(204, b"", self.progress())
        self.begun = request
        if self.is_stored:
            return Answer(200, upload_body(self.kept), self.progress())
        # Another host than the one that the client uses: the credential must not be sent there.
        location = f"http://service.example:9/files/uploads/{uuid4()}"
        return Answer(201, b"", {"Location": location, **self.progress()})

    def append(self, request: Request) -> Answer:
        if int(request.headers["upload-offset"]) != len(self.kept):
            return problem(409, "mismatching_upload_offset")
        arrived, failure = self.plan.get(self.seen["PATCH"], (len(request.body), None))
        # Bytes that arrived before a failure stay, as in the service.
        self.kept += request.body[:arrived]
        self.is_stored = request.headers["upload-complete"] == "?1" and arrived >= len(request.body)
        if failure is not None:
            if isinstance(failure, Answer):
                return failure
            raise failure
        if self.is_stored:
            return Answer(201, upload_body(self.kept), self.progress())
        return Answer(204, b"", self.progress())

    def progress(self) -> dict[str, str]:
        return {
            "Upload-Offset": str(len(self.kept)),
            "Upload-Complete": "?1" if self.is_stored else "?0",
            "Content-Length": "0"
            if not self.is_stored
            else str(len(Answer(body=upload_body(self.kept)).content)),
        }


@pytest.fixture(autouse=True)
def resumable_from_the_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (of_tasks, of_threads):
        # Both halves are modules of their own, and a test uses one or the other.
        monkeypatch.setattr(module, "RESUMABLE_ABOVE_BYTES", -1)


def upload(service: ScriptedService, connect: Connect, script: ResumableScript, **options: Any) -> Any:
    service.script = script
    client = connect(**service.key, max_retries=3)
    return client.files.upload(CONTENT, file_name="bericht ü.pdf", **options)


def test_content_arrives_in_steps_that_carry_what_an_upload_says(
    service: ScriptedService, connect: Connect
) -> None:
    script = ResumableScript()
    upload(service, connect, script)
    assert script.kept == CONTENT
    assert script.begun is not None
    headers = script.begun.headers
    assert unquote(headers["content-disposition"]) == "attachment; filename*=UTF-8''bericht ü.pdf"
    assert (headers["upload-complete"], headers["content-type"]) == ("?0", "application/pdf")
    assert headers["repr-digest"].startswith("sha-256=:")
    assert script.begun.query["byteSize"] == headers["upload-length"] == str(len(CONTENT))
    assert script.seen["PATCH"] == 2
    assert script.seen["HEAD"] == 0


@pytest.mark.parametrize(
    "failure",
    [NoAnswer, problem(503, "unavailable"), problem(408, "upload_timeout"), problem(429, "rate_limited")],
)
def test_what_was_kept_is_not_sent_again(service: ScriptedService, connect: Connect, failure: Any) -> None:
    script = ResumableScript({1: (400_000, failure), 2: (1, failure), 4: (7, failure)})
    upload(service, connect, script)
    assert script.kept == CONTENT
    assert script.seen["HEAD"] == 3


def test_a_lost_last_answer_is_asked_for_again(service: ScriptedService, connect: Connect) -> None:
    script = ResumableScript({2: (len(CONTENT), NoAnswer)})
    assert upload(service, connect, script).metadata.content_sha256
    assert script.kept == CONTENT
    assert script.seen == {"POST": 2, "PATCH": 2, "HEAD": 1}


def test_stalled_upload_fails_and_slow_upload_succeeds(service: ScriptedService, connect: Connect) -> None:
    with pytest.raises(errors.ConnectionFailed):
        upload(service, connect, ResumableScript(dict.fromkeys(range(1, 100), (0, NoAnswer))))
    # More failures than max_retries, but each attempt makes progress.
    crawling = ResumableScript(dict.fromkeys(range(1, 20), (50_000, NoAnswer)))
    upload(service, connect, crawling)
    assert crawling.kept == CONTENT


def test_a_refusal_ends_the_upload(service: ScriptedService, connect: Connect) -> None:
    with pytest.raises(errors.InvalidRequest, match="digest_mismatch"):
        upload(service, connect, ResumableScript({2: (len(CONTENT), problem(422, "digest_mismatch"))}))


def test_progress_never_exceeds_the_content_and_ends_with_it(
    service: ScriptedService, connect: Connect
) -> None:
    seen: list[int] = []
    script = ResumableScript({1: (400_000, NoAnswer)})
    upload(service, connect, script, progress=lambda sent, _: seen.append(sent))
    assert seen[-1] == max(seen) == len(CONTENT)


def test_a_line_too_slow_for_one_request_gets_several(
    service: ScriptedService, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (of_tasks, of_threads):
        monkeypatch.setattr(module, "RESUMABLE_ABOVE_BYTES", 16 << 20)
    script = ResumableScript()
    slow = problem(408, "upload_timeout")
    service.script = lambda request: slow if len(service.requests) == 1 else script(request)
    connect(**service.key).files.upload(CONTENT, file_name="a")
    assert script.kept == CONTENT
    first, second = service.requests[:2]
    assert first.query == second.query, "both are the same operation"


def test_only_the_beginning_carries_the_attribution_which_the_rest_may_outlive(
    service: ScriptedService, connect: Connect
) -> None:
    with context.use(make_context("a.b.c")):
        upload(service, connect, ResumableScript({1: (7, NoAnswer)}))
    carried = {request.method: "service-usage-attribution" in request.headers for request in service.requests}
    assert carried == {"POST": True, "PATCH": False, "HEAD": False}


def test_steps_become_longer_on_fast_lines_and_shorter_on_slow_ones() -> None:
    assert of_threads._next_step_bytes(1 << 20, 0.0) == 16 << 20
    assert of_threads._next_step_bytes(1 << 20, 10.0) == 1 << 19
    assert of_threads._next_step_bytes(1 << 20, 1000.0) == 256 << 10
