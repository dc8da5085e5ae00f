"""The console in a real browser, over the whole service: readable by everyone, by keyboard, and without scripts.

`make test-console` keeps screenshots of every page under `dist/console/`; look at them.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import update

from shared.credits.amounts import MICRO
from shared.credits.holds import Attribution
from shared.credits.rollups import roll_up_usage
from shared.identity.authorization import OPERATOR
from shared.identity.console_sessions import issue_link
from shared.identity.roles import Role
from shared.identity.tables import users
from tests.openapi.conftest import node, run, tools  # noqa: F401 (fixtures)
from tests.shared.credits.calls import Calls
from tests.support.identity import Person
from tests.support.model_service import ModelService, running_model_service
from web.console.routes import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
HERE = Path(__file__).parent
IS_SHORT = bool(os.environ.get("CONSOLE_SHORT"))
SCREENS = [(scheme, width) for scheme in ("light", "dark") for width in (390, 1280)]
SHORT_SCREENS = [("light", 1280), ("dark", 390)]
SHORT_WALKS = ["/console", "/console/models", "/console/files", "/console/people/identities"]
PATHS = sorted(
    route.path
    for routes in PAGES
    for route in routes.declared
    if route.method == "GET" and "<" not in route.path and not route.path.endswith((".csv", "/operations"))
)
NAMES = ("<img src=x onerror=alert(1)>", "תיבת דואר של הצוות", "w" * 200, "Claims triage", "Slack support")


def make_house(service: ModelService, name: str, calls: int) -> Person:
    """Make an organization in which so much happened; give its owner."""
    make = service.identity
    organization_id = make.organization(name).id
    owner = make.person(organization_id, Role.WORKSPACE_OWNER)
    with service.database.transaction() as session:
        session.execute(
            update(users).where(users.c.id == owner.user_id).values(active_organization_id=organization_id)
        )
    if calls:
        fill(service, organization_id, owner, calls)
    return owner


def fill(service: ModelService, organization_id: UUID, owner: Person, calls: int) -> None:
    make, used = service.identity, Calls(service.database, organization_id)
    used.top_up(1000 * MICRO)
    principals = [make.principal(organization_id, name).id for name in NAMES[: calls + 1]]
    many = range(60) if calls > 1 else range(1)
    keys = [make.person(organization_id, bound=True) for _ in many]
    for number in range(calls):
        principal = principals[number % len(principals)]
        who = Attribution(
            user_id=owner.user_id, principal_id=principal, api_key_id=keys[number % len(keys)].api_key_id
        )
        used.charge(700_000 + number * 1000, attribution=who, model=f"acme/{'abcdefgh'[number % 8]}-large")
    used.hold(3_120_000, model="acme/a-large")
    roll_up_usage(service.database)


@pytest.fixture(scope="module")
def service(node: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: F811
    with running_model_service(tmp_path_factory.mktemp("console"), "models") as running:
        yield running


@pytest.fixture(scope="module")
def seen(service: ModelService, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Look at everything once."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium: pages are not looked at")
    screenshots = Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    screenshots.mkdir(parents=True, exist_ok=True)
    houses = [("empty", 0), ("many", 240)] if IS_SHORT else [("empty", 0), ("one", 1), ("many", 240)]
    owners = {name: make_house(service, f"{name.capitalize()} & Sons", calls) for name, calls in houses}
    plan = {
        "browser": browser,
        "screenshots": str(screenshots),
        "url": service.front.url,
        "paths": PATHS,
        "walks": SHORT_WALKS if IS_SHORT else PATHS,
        "screens": SHORT_SCREENS if IS_SHORT else SCREENS,
        "houses": [{"house": name, "link": link(service, owner)} for name, owner in owners.items()],
        "plain": {"code": link(service, owners["many"]).partition("#")[2], "key": "without scripts"},
    }
    path = screenshots / "plan.json"
    path.write_text(json.dumps(plan))
    ran = run(["sh", "-c", f"exec node {HERE}/console.mjs < {path}"], screenshots)
    path.unlink()
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def link(service: ModelService, owner: Person) -> str:
    with service.database.transaction() as session:
        return issue_link(session, by=OPERATOR, user_id=owner.user_id).address(service.front.url)


def wrong(looks: list[dict[str, Any]], what: str) -> list[Any]:
    return [(at["house"], at["path"], at["scheme"], at["width"], at[what]) for at in looks if at[what]]


def test_every_page_opens_in_every_scheme_and_width(seen: Any) -> None:
    assert [(at["path"], at["status"]) for at in seen["looks"] if at["status"] != 200] == []
    assert {at["path"] for at in seen["looks"]} == set(PATHS)


def test_axe_finds_nothing(seen: Any) -> None:
    assert wrong(seen["looks"], "violations") == []


def test_nothing_is_wider_than_the_screen(seen: Any) -> None:
    assert [at for at in wrong(seen["looks"], "overflow") if at[-1] > 0] == []


def test_the_browser_complains_of_nothing_and_runs_nothing_of_names(seen: Any) -> None:
    assert wrong(seen["looks"], "complaints") == []


def test_everything_is_reached_by_keyboard_and_seen_where_it_is(seen: Any) -> None:
    assert [(at["path"], at["missed"]) for at in seen["walks"] if at["missed"]] == []
    assert [(at["path"], at["faint"]) for at in seen["walks"] if at["faint"]] == []


def test_the_menu_of_a_phone_opens_and_closes_by_keyboard(seen: Any) -> None:
    assert seen["menu"] == {"opened": True, "closed": True, "returned": True}


def test_the_playground_streams_as_text_and_says_what_it_cost(seen: Any) -> None:
    assert "<b>everybody</b>" in seen["streamed"]["reply"]
    assert seen["streamed"]["markup"] == 0
    assert "Completed" in seen["streamed"]["bill"]
    assert "tokens in" in seen["streamed"]["bill"]


def test_without_scripts_everything_works(seen: Any) -> None:
    entered, reply, bill, secret, revoked, left = seen["plain"]["done"]
    assert (entered, secret, revoked, left) == ("/console", "svk_", "/console/keys", "/console/in")
    assert "hello" in reply.lower()
    assert "Completed" in bill
    assert seen["plain"]["complaints"] == []
