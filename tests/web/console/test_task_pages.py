"""The pages of tasks: the timeline, the permission to read it, and messages to the agent."""

from collections.abc import Callable
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.a2a.turn_state.rows import calls_of
from shared.a2a.updates import DeclaredExtension
from shared.credits.amounts import MICRO
from shared.credits.tables import usage_records
from shared.identity.access.roles import Role
from tests.support.data.identity import Person
from tests.support.data.row_factory import plant
from tests.support.processes.stack import wait_until
from tests.support.web.browser import Answer, Browser
from tests.support.web.web_process import Front
from tests.web.a2a.conftest import SCRIPT, Cast, cast, give_script
from tests.web.console.conftest import with_organization

__all__ = ["cast"]
SignedIn = Callable[[Person], Browser]
MARKUP = "<img src=x onerror=alert(1)>"
HOSTILE = f"""
rules:
  - match: {{text: work}}
    steps:
      - status: "{MARKUP} status"
      - artifact: {{id: a, name: "{MARKUP} name", chunks: ["{MARKUP} chunk"]}}
      - complete: "{MARKUP} done"
  - match: {{text: ask}}
    steps: [{{input_required: "Which one?"}}, {{echo: complete}}]
  - steps: [{{complete: Fine}}]
"""


@pytest.fixture
def owner(cast: Cast, signed_in: SignedIn) -> Browser:
    return with_organization(
        cast.acme, signed_in(cast.front.identity.person(cast.acme, Role.WORKSPACE_OWNER))
    )


def wait_for_word(browser: Browser, path: str, word: str) -> Answer:
    """Reload a page until it contains a word, and return the last response."""
    shown: list[Answer] = []

    def has_come() -> bool:
        shown.append(browser.get(path.partition("#")[0]))
        return word in shown[-1].text

    wait_until(has_come, f"{word} on {path}")
    return shown[-1]


def talk(browser: Browser, agent_id: UUID, message: str) -> str:
    sent = browser.submit(f"/console/agents/{agent_id}", f"/console/agents/{agent_id}/talk", message=message)
    assert sent.status == 303, sent.text
    assert sent.location.startswith("/console/tasks/")
    return sent.location


def test_one_talks_to_an_agent_and_sees_what_it_does_as_text(cast: Cast, owner: Browser) -> None:
    agent, _ = cast.new_agent(HOSTILE)
    page = talk(owner, agent.deployment.id, "work")
    shown = wait_for_word(owner, page, "completed").text
    for said in ("status", "name", "chunk", "done"):
        assert f"&lt;img src=x onerror=alert(1)&gt; {said}" in shown
    assert "<img" not in shown
    assert shown.index("chunk") < shown.index(">completed<", shown.index("<ol"))
    assert "hx-get" not in owner.get(page, {"HX-Request": "true"}).text


def test_one_answers_an_agent_that_asks_and_the_page_goes_on_by_itself(cast: Cast, owner: Browser) -> None:
    agent, _ = cast.new_agent(HOSTILE)
    page = talk(owner, agent.deployment.id, "ask")
    wait_for_word(owner, page, "Which one?")
    part = owner.get(page, {"HX-Request": "true"})
    assert part.text.lstrip().startswith('<section id="line" hx-get=')
    sent = owner.submit(page, f"{page}/say", message="The second")
    assert sent.location == f"{page}#end"
    assert wait_for_word(owner, page, "completed").text.count("The second") >= 2
    over = owner.submit(page, f"{page}/say", message="And now?")
    assert over.status == 400


def test_one_who_talks_to_an_agent_is_told_which_extension_it_requires(cast: Cast, owner: Browser) -> None:
    required = DeclaredExtension(uri="https://example.com/required/v1", required=True)
    agent, _ = cast.new_agent(HOSTILE, extensions=(required,))
    page = f"/console/agents/{agent.deployment.id}"
    refused = owner.submit(page, f"{page}/talk", message="work")
    assert refused.status == 400
    assert "extension_support_required" in refused.text
    assert required.uri in refused.text


def test_one_cancels_a_task_of_ones_own_until_it_is_over(
    cast: Cast, owner: Browser, signed_in: SignedIn
) -> None:
    agent, _ = cast.new_agent(HOSTILE)
    member = with_organization(cast.acme, signed_in(cast.person()))
    page = talk(member, agent.deployment.id, "ask")
    wait_for_word(member, page, "Which one?")
    assert "Cancel task" not in owner.get(page).text
    assert owner.submit("/console/tasks", f"{page}/cancel").status == 404
    canceled = member.submit(page, f"{page}/cancel")
    assert (canceled.status, canceled.location) == (303, page)
    shown = member.get(page).text
    assert ">canceled<" in shown
    assert "Cancel task" not in shown
    assert "hx-get" not in shown
    again = member.submit(page, f"{page}/cancel")
    assert again.status == 400
    assert "task_not_cancelable" in again.text


def test_a_task_shows_what_its_own_model_call_cost(front: Front, cast: Cast, owner: Browser) -> None:
    agent, _ = cast.new_agent(SCRIPT)
    page = talk(owner, agent.deployment.id, "ping")
    wait_for_word(owner, page, "completed")
    task_id = page.rpartition("/")[2]
    with front.services.database.autocommit() as session:
        turn_id = session.execute(
            text("SELECT id FROM task_turns WHERE task_id = :id"), {"id": task_id}
        ).scalar_one()
    plant(
        front.services.database,
        usage_records,
        invocation_id=calls_of(turn_id)[0],
        organization_id=cast.acme,
        model=f"acme/{MARKUP}",
        cost=2 * MICRO + 345_678,
        status="completed",
    )
    shown = owner.get(page).text
    assert "2.34<span" in shown
    assert "in 1 model call of its behavior" in shown
    assert "acme/&lt;img" in shown


def test_a_task_is_read_by_its_own_and_by_those_who_may_read_all(
    cast: Cast,
    front: Front,
    owner: Browser,
    signed_in: SignedIn,
) -> None:
    agent, _ = cast.new_agent(SCRIPT)
    member = with_organization(cast.acme, signed_in(cast.person()))
    page = talk(member, agent.deployment.id, "ping")
    assert wait_for_word(member, page, "completed").status == 200
    seen = owner.get(page)
    assert (seen.status, "<textarea" in seen.text) == (200, False)
    assert owner.submit("/console/tasks", f"{page}/say", message="Hello").status == 404
    assert with_organization(cast.acme, signed_in(cast.person())).get(page).status == 404
    elsewhere = front.identity.organization("Initech").id
    anonymous = signed_in(front.identity.person(elsewhere, Role.WORKSPACE_OWNER))
    assert with_organization(elsewhere, anonymous).get(page).status == 404


def test_what_is_too_long_for_a_page_is_left_out(cast: Cast, owner: Browser) -> None:
    agent = cast.front.identity.deployment(cast.acme)
    give_script(cast.front, agent, SCRIPT)
    page = talk(owner, agent.deployment.id, "ping " + "w" * 70_000)
    shown = wait_for_word(owner, page, "completed").text
    assert "This message is too long to show." in shown
    assert "w" * 70_000 not in shown
