"""Action items of the console: retry imports, resend notifications, check an endpoint."""

from collections.abc import Callable
from uuid import UUID

import pytest
from sqlalchemy import func

from shared.a2a.endpoint_tables import deployment_endpoints
from shared.a2a.tables import tasks
from shared.credits.amounts import MICRO
from shared.credits.balances import get_balance
from shared.deliveries.tables import deliveries
from shared.identity.access.roles import Role
from shared.ids import new_id
from tests.shared.credits.calls import Calls
from tests.support.data.identity import Person
from tests.support.data.row_factory import plant
from tests.support.web.browser import Browser
from tests.support.web.web_process import Front
from tests.web.console.conftest import with_organization
from tests.web.media.conftest import Connector, make_connector, media, sql
from web.console.action_items import list_credit_items
from web.console.spend_series import BurnRate

MARKUP = "<img src=x onerror=alert(1)>.png"


@pytest.fixture
def connector(front: Front) -> Connector:
    return make_connector(front)


@pytest.fixture
def owner(front: Front, connector: Connector, signed_in: Callable[[Person], Browser]) -> Browser:
    person = front.identity.person(connector.organization_id, Role.WORKSPACE_OWNER)
    return with_organization(connector.organization_id, signed_in(person))


def page_of(connector: Connector) -> str:
    return f"/console/distributions/{connector.id}"


def push(connector: Connector, state: str, code: str | None, name: str = MARKUP) -> UUID:
    """Create an import in this state."""
    answer = connector.push(media(fileName=name))
    assert answer.status_code == 202, answer.text
    import_id = UUID((answer.json or {})["importId"])
    ended = state == "Failed"
    sql(
        connector.front,
        "UPDATE media_imports SET state = :state, code = :code, is_ready = false,"
        " ended_at = CASE WHEN :ended THEN now() END, forget_at = CASE WHEN :ended THEN now() END WHERE id = :id",
        state=state,
        code=code,
        ended=ended,
        id=import_id,
    )
    return import_id


def states(connector: Connector) -> dict[UUID, str]:
    rows = sql(
        connector.front, "SELECT id, state FROM media_imports WHERE distribution_id = :id", id=connector.id
    )
    return {row.id: row.state for row in rows}


def test_a_failed_import_says_why_and_is_retried(connector: Connector, owner: Browser) -> None:
    failed, held = push(connector, "Failed", "media_gone"), push(connector, "Held", "target_disabled")
    page = owner.get(page_of(connector)).text
    assert "Have the sender send it again." in page
    assert 'href="/problems/target_disabled"' in page
    assert "<img" not in page
    answer = owner.submit(page_of(connector), f"{page_of(connector)}/imports/{failed}/retry")
    assert (answer.status, answer.location) == (303, f"{page_of(connector)}#imports")
    assert states(connector) == {failed: "Queued", held: "Held"}
    assert owner.submit(page_of(connector), f"{page_of(connector)}/imports/{failed}/retry").status == 409


def test_imports_are_retried_by_state_reason_and_day(connector: Connector, owner: Browser) -> None:
    gone, slow = push(connector, "Failed", "media_gone"), push(connector, "Failed", "fetch_timed_out")
    held = push(connector, "Held", "target_disabled")
    act = f"{page_of(connector)}/imports/retry"
    for wrong in ({"state": "Stored"}, {"since": "yesterday"}):
        assert owner.submit(page_of(connector), act, **wrong).status == 422
    assert owner.submit(page_of(connector), act, since="2100-01-01").status == 303
    assert owner.submit(page_of(connector), act, state="Failed", code="media_gone").status == 303
    assert states(connector) == {gone: "Queued", slow: "Failed", held: "Held"}
    assert owner.submit(page_of(connector), act).location.endswith("?state=Queued#imports")
    assert set(states(connector).values()) == {"Queued"}


def test_a_notification_that_was_given_up_is_sent_again(
    front: Front, connector: Connector, owner: Browser
) -> None:
    told = {"organization_id": connector.organization_id, "destination_id": connector.id, "state": "Dead"}
    for event in ("media.stored", "media.failed"):
        plant(
            front.services.database,
            deliveries,
            kind="media",
            event=event,
            last_code="connection_failed",
            body=b"{}",
            ended_at=func.now(),
            **told,
        )
    rows = sql(front, "SELECT id FROM deliveries WHERE destination_id = :id ORDER BY id", id=connector.id)
    page = owner.get(f"{page_of(connector)}?notifications=Dead").text
    assert "The source could not be reached" in page
    act = f"{page_of(connector)}/notifications/{rows[0].id}/resend"
    assert owner.submit(page_of(connector), act).location == f"{page_of(connector)}#notifications"
    assert "Send now" in owner.get(page_of(connector)).text
    assert owner.submit(page_of(connector), act).status == 303
    found = sql(front, "SELECT id, state FROM deliveries WHERE destination_id = :id", id=connector.id)
    assert {row.id: row.state for row in found} == {rows[0].id: "Waiting", rows[1].id: "Dead"}
    replay = f"{page_of(connector)}/notifications/replay"
    assert owner.submit(page_of(connector), replay, since="soon").status == 422
    assert owner.submit(page_of(connector), replay, since="2026-01-01").status == 303
    found = sql(front, "SELECT state FROM deliveries WHERE destination_id = :id", id=connector.id)
    assert {row.state for row in found} == {"Waiting"}


def test_a_member_sees_imports_and_mends_none(
    front: Front, connector: Connector, signed_in: Callable[[Person], Browser]
) -> None:
    failed = push(connector, "Failed", "media_gone")
    person = front.identity.person(connector.organization_id)
    member = with_organization(connector.organization_id, signed_in(person))
    shown = member.get(page_of(connector)).text
    assert "Have the sender send it again." in shown
    assert "/retry" not in shown
    act = f"{page_of(connector)}/imports/{failed}/retry"
    assert member.submit(page_of(connector), act).status == 403


def test_an_endpoint_is_checked_and_the_page_says_what_is_wrong(
    front: Front, connector: Connector, owner: Browser
) -> None:
    deployment_id = connector.deployment.deployment.id
    page = f"/console/agents/{deployment_id}"
    assert owner.submit(page, f"{page}/endpoint/check").status == 404
    plant(
        front.services.database,
        deployment_endpoints,
        deployment_id=deployment_id,
        organization_id=connector.organization_id,
        url="http://127.0.0.1:9",
    )
    assert "not looked at yet" in owner.get(page).text
    checked = owner.submit(page, f"{page}/endpoint/check")
    assert checked.status == 200
    assert "no message reaches the agent" in checked.text
    assert "Check again" in owner.get(page).text


def test_the_first_page_names_what_failed_and_leads_to_it_or_mends_it(
    front: Front, connector: Connector, owner: Browser
) -> None:
    database, organization_id = front.services.database, connector.organization_id
    deployment = connector.deployment.deployment
    assert "Needs attention" in owner.get("/console").text  # there are no credits
    push(connector, "Failed", "media_gone")
    push(connector, "Held", "target_disabled")
    plant(
        database,
        deployment_endpoints,
        deployment_id=deployment.id,
        organization_id=organization_id,
        url="http://127.0.0.1:9",
        problem=f"unreachable {MARKUP}",
    )
    plant(
        database,
        deliveries,
        organization_id=organization_id,
        destination_id=connector.id,
        state="Dead",
        body=b"{}",
        ended_at=func.now(),
    )
    plant(
        database,
        tasks,
        id=new_id(),
        organization_id=organization_id,
        deployment_id=deployment.id,
        state="TASK_STATE_FAILED",
        status_at=func.now(),
        is_visible=True,
    )
    page = owner.get("/console").text
    for path in (
        f"{page_of(connector)}?state=Failed#imports",
        f"{page_of(connector)}?state=Held#imports",
        f"{page_of(connector)}/resend",
        f"/console/agents/{deployment.id}/endpoint/check",
        "/console/tasks/",
        "/console/top-up",
    ):
        assert f'"{path}' in page, path
    assert "Have the sender send it again." in page
    assert "<img" not in page
    assert owner.submit("/console", f"{page_of(connector)}/resend").status == 303
    assert "could not be delivered" not in owner.get("/console").text


def test_a_member_is_told_of_nothing_that_only_others_mend(
    front: Front, connector: Connector, signed_in: Callable[[Person], Browser]
) -> None:
    push(connector, "Failed", "media_gone")
    person = front.identity.person(connector.organization_id)
    assert (
        "Needs attention"
        not in with_organization(connector.organization_id, signed_in(person)).get("/console").text
    )


@pytest.mark.parametrize(
    ("days", "said"),
    [(0, ["Credits last less than a day"]), (6, ["Credits last 6 days"]), (7, []), (None, [])],
)
def test_credits_that_soon_end_are_a_thing_to_mend(
    front: Front, connector: Connector, days: int | None, said: list[str]
) -> None:
    Calls(front.services.database, connector.organization_id).top_up(10 * MICRO)
    with front.services.database.autocommit() as session:
        balance = get_balance(session, connector.organization_id)
    found = list_credit_items(balance, BurnRate(per_day=MICRO, days_left=days, ends_on=None))
    assert [(mend.title, mend.path) for mend in found] == [(title, "/console/top-up") for title in said]
