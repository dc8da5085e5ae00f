"""Check all responses of web processes that tests start, streams included, against the OpenAPI document.

The processes write violations into a file. The test that runs at that time fails.
"""

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, Response, request

import web.app
from shared.config.settings import Settings
from shared.runtime.deferred_responses import DeferredResponse
from tests.support.web.checked_responses import Given, find_undocumented
from web.dependencies.services import Services
from web.framework.deferred_responses import ResponsePlaceholder

UNDOCUMENTED = "UNDOCUMENTED_ANSWERS"
MAXIMUM_BYTES = 1 << 20
"""Of a stream, what is looked at."""
_EVENTS = {"Content-Type": "text/event-stream"}


def watch_applications() -> None:
    """Have every application created from now on record responses that the document does not describe."""
    create = web.app.create_app

    def create_watched(settings: Settings, services: Services | None = None) -> Flask:
        app = create(settings, services)
        if UNDOCUMENTED in os.environ:
            # Flask calls the function registered first last, when the response is final.
            looking = partial(look, Path(os.environ[UNDOCUMENTED]))
            app.after_request_funcs.setdefault(None, []).insert(0, looking)
        return app

    web.app.create_app = create_watched


def look(file: Path, response: Response) -> Response:
    """Record what the document does not describe; of a stream, after its end."""
    note = partial(_note, file, request.method, request.url_rule.rule if request.url_rule else None)
    if isinstance(response, ResponsePlaceholder):
        # A later response replaces this one and is checked itself, or frames follow.
        response._steps = _listened_to(response._steps, partial(note, 200, _EVENTS))
        return response
    if response.mimetype == "text/event-stream":
        _listen(response, partial(note, response.status_code, _EVENTS))
    is_whole = not (response.is_streamed or response.direct_passthrough)
    note(response.status_code, dict(response.headers), response.get_data() if is_whole else None)
    return response


def _listen(response: Response, note: Callable[[bytes], None]) -> None:
    """Check the events of a stream after its end."""
    frames = response.response
    if isinstance(frames, DeferredResponse):
        frames._pieces = _listened_to(frames._pieces, note)
    elif isinstance(frames, Iterator):
        response.response = _listened_to(frames, note)


def _listened_to(steps: Iterator[Any], note: Callable[[bytes], None]) -> Generator[Any]:
    said = bytearray()
    try:
        for step in steps:
            if isinstance(step, bytes) and len(said) < MAXIMUM_BYTES:
                said += step
            yield step
    finally:
        if isinstance(steps, Generator):
            steps.close()
        if whole := bytes(said[: said.rfind(b"\n\n") + 2]) if b"\n\n" in said else b"":
            note(whole)


def _note(
    file: Path, method: str, rule: str | None, status: int, headers: Mapping[str, str], body: bytes | None
) -> None:
    found = find_undocumented(Given(method=method, rule=rule, status=status, headers=headers, body=body))
    if found is not None:
        with file.open("a") as written:
            written.write(f"{found}\n")


@pytest.fixture(scope="session", autouse=True)
def undocumented_answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the file into which web processes write; their environment names it."""
    file = tmp_path_factory.mktemp("undocumented") / "answers.txt"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(UNDOCUMENTED, str(file))
        yield file


@pytest.fixture(autouse=True)
def _answers_are_documented(undocumented_answers: Path) -> Iterator[None]:
    yield
    if undocumented_answers.exists():
        found = undocumented_answers.read_text()
        undocumented_answers.unlink()
        pytest.fail(f"The OpenAPI document does not describe these answers:\n{found}")
