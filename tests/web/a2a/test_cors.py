"""CORS: pages of the configured origins can use agents."""

from collections.abc import Iterator

import pytest

from tests.support.web.web_process import Front, open_front
from tests.web.a2a.asking import Client
from tests.web.a2a.conftest import Cast

PAGE = "https://app.example"


@pytest.fixture(scope="module")
def shared(front: Front, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A front that allows one origin."""
    blobs = tmp_path_factory.mktemp("blobs")
    settings = front.settings
    with open_front(settings.database_url, settings.redis_url, blobs, a2a_cors_origins=(PAGE,)) as opened:
        yield opened


def preflight(front: Front, path: str, origin: str = PAGE) -> dict[str, str]:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    answer = front.client.open(path, method="OPTIONS", headers=headers)
    return {"status": str(answer.status_code), **dict(answer.headers)}


def test_a_page_of_a_named_origin_may_ask_and_read(shared: Front, cast: Cast) -> None:
    for path in (f"{cast.member.prefix}/message:send", cast.member.prefix, "/tasks"):
        answered = preflight(shared, path)
        assert (answered["status"], answered["Access-Control-Allow-Origin"]) == ("204", PAGE)
        assert "POST" in answered["Access-Control-Allow-Methods"]
        assert "Authorization" in answered["Access-Control-Allow-Headers"]
    client = Client(shared, cast.member.prefix, cast.member.authorization, {"Origin": PAGE})
    for answer in (client.ask("GET", "/tasks"), client.ask("GET", "/tasks/absent")):
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert "Origin" in answer.headers["Vary"]
        assert "A2A-Extensions" in answer.headers["Access-Control-Expose-Headers"]
        assert "Access-Control-Allow-Credentials" not in answer.headers


def test_other_origins_get_no_cors_headers(shared: Front, front: Front, cast: Cast) -> None:
    path = f"{cast.member.prefix}/message:send"
    for answered in (
        preflight(shared, path, "https://evil.example"),
        preflight(front, path),
        preflight(shared, "/files"),
    ):
        assert answered["status"] == "405"
        assert "Access-Control-Allow-Origin" not in answered


def test_any_origin_may_be_let_in(front: Front, cast: Cast, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings, blobs = front.settings, tmp_path_factory.mktemp("blobs")
    with open_front(settings.database_url, settings.redis_url, blobs, a2a_cors_origins=("*",)) as opened:
        assert preflight(opened, "/message:send")["Access-Control-Allow-Origin"] == "*"
