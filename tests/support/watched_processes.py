"""Fronts that tests start as processes hold all of their answers against the OpenAPI document.

They write what they find into a file; the test during which it was written fails.
"""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from flask import Flask, Response, request

import web.app
from shared.settings import Settings
from tests.support.documented import Given, find_undocumented
from web.holding import HeldResponse
from web.services import Services

UNDOCUMENTED = "UNDOCUMENTED_ANSWERS"


def watch_applications() -> None:
    """Have applications that are made from now on write down answers that the document does not describe."""
    create = web.app.create_app

    def create_watched(settings: Settings, services: Services | None = None) -> Flask:
        app = create(settings, services)
        if UNDOCUMENTED in os.environ:
            # The first that is registered is called last, when the answer is as it leaves.
            look = partial(_look, Path(os.environ[UNDOCUMENTED]))
            app.after_request_funcs.setdefault(None, []).insert(0, look)
        return app

    web.app.create_app = create_watched


def _look(file: Path, response: Response) -> Response:
    if isinstance(response, HeldResponse):
        return response  # there will be another in its place
    is_whole = not (response.is_streamed or response.direct_passthrough)
    found = find_undocumented(
        Given(
            method=request.method,
            rule=request.url_rule.rule if request.url_rule else None,
            status=response.status_code,
            headers=dict(response.headers),
            body=response.get_data() if is_whole else None,
        )
    )
    if found is not None:
        with file.open("a") as written:
            written.write(f"{found}\n")
    return response


@pytest.fixture(scope="session", autouse=True)
def undocumented_answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the file into which fronts write; they are told by their environment."""
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
