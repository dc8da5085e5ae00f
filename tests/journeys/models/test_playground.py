"""The console's playground: a call like any client's, whole or streamed, charged and attributed to the user."""

from urllib.parse import urlsplit

import pytest

from shared.identity.access.authorization import OPERATOR
from shared.identity.sign_in.console_sessions import find_operator, issue_link
from tests.support.models.model_service import ModelService
from tests.support.web.browser import Browser

pytestmark = pytest.mark.usefixtures("worker")
ASK = "/console/models/ask"
QUESTION = {"model": "scripted/echo", "message": "Say <b>hello</b>\n\nTwice", "max": "100"}


@pytest.fixture
def browser(service: ModelService) -> Browser:
    port = urlsplit(service.front.url).port
    assert port is not None
    browser = Browser(port=port)
    with service.database.transaction() as session:
        user_id = find_operator(session)
        assert user_id is not None
        code = issue_link(session, actor=OPERATOR, user_id=user_id).code.value
    assert browser.submit("/console/in", "/console/in", code=code).status == 303
    return browser


def test_page_shows_the_whole_reply_as_text_and_its_cost(service: ModelService, browser: Browser) -> None:
    before = len(service.records())
    answer = browser.submit("/console/models", ASK, **QUESTION)
    assert answer.status == 200
    assert "Say &lt;b&gt;hello&lt;/b&gt;" in answer.text.split('id="reply"')[1]
    assert "Completed" in answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    service.wait_until_settled()
    record = service.records()[before]
    assert (record["user_id"] is not None, record["api_key_id"]) == (True, None)


def test_script_receives_a_stream(service: ModelService, browser: Browser) -> None:
    token = browser.get("/console/models").token
    answer = browser.post(ASK, {"csrf": token, **QUESTION}, {"Accept": "text/event-stream"})
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    service.wait_until_settled()


@pytest.mark.parametrize(
    ("wrong", "status"), [({"model": "none/such"}, 404), ({"max": "0"}, 422), ({"message": ""}, 422)]
)
def test_invalid_question_is_refused_on_a_page(browser: Browser, wrong: dict[str, str], status: int) -> None:
    answer = browser.submit("/console/models", ASK, **QUESTION | wrong)
    assert (answer.status, "<h1>" in answer.text) == (status, True)
