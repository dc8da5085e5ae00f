"""The console in a real browser, over the whole service: accessible, usable by keyboard and without scripts.

`make test-console` writes screenshots of every page to `dist/console/`. With `CONSOLE_SHORT=1` it uses fewer
organizations and screens; with `CONSOLE_SHORT=2`, as in CI, only the largest organization on one screen.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shared.identity.access.authorization import OPERATOR
from shared.identity.sign_in.console_sessions import issue_link
from tests.browser.houses import House, make_house
from tests.openapi.conftest import run
from tests.support.data.identity import Person
from tests.support.models.model_service import ModelService, running_model_service
from web.console.routes import PAGES

SHORT = int(os.environ.get("CONSOLE_SHORT") or 0)
SECONDS = (1800, 1800, 600)[SHORT]
pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(SECONDS)]
HERE = Path(__file__).parent
SCREENS = (
    [(scheme, width) for scheme in ("light", "dark") for width in (390, 1280)],
    [("light", 1280), ("dark", 390)],
    [("light", 1280)],
)[SHORT]
MANY = 60
SIZES = ({"empty": 0, "one": 1, "many": MANY}, {"empty": 0, "many": MANY}, {"many": MANY})[SHORT]
SHORT_WALKS = ["/console", "/console/models", "/console/files", "/console/people/identities"]
ALL = {route.path for routes in PAGES for route in routes.declared if route.method == "GET"}
OPERATIONS = "/console/operations"
OPEN = ("/", "/problems", "/problems/not_found", "/console/in")
"""Pages that need no session."""
NO_PAGES = {"/console/activity.csv", "/console/files/<id:file_id>/content"}
MORE = (
    "/console?window=24h",
    "/console/activity?status=failed",
    "/console/files?name=nothing",
    "/console/tasks?state=failed",
)
"""Pages with filters set."""


def paths_for(house: House) -> list[str]:
    """Return the paths of all pages about an organization, for the resources that it has."""
    filled = {path: _fill(path, house.named) for path in ALL - NO_PAGES - {OPERATIONS}}
    return sorted([path for path in filled.values() if "<" not in path] + list(MORE))


def _fill(path: str, named: Mapping[str, str]) -> str:
    return re.sub(r"<\w+:(\w+)>", lambda match: named.get(match[1], match[0]), path)


@pytest.fixture(scope="module")
def service(node: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running_model_service(tmp_path_factory.mktemp("console"), "models") as running:
        yield running


@pytest.fixture(scope="module")
def seen(service: ModelService, chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Open every page once, and record the findings."""
    screenshots = Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    screenshots.mkdir(parents=True, exist_ok=True)
    houses = {name: make_house(service, f"{name.capitalize()} & Sons", size) for name, size in SIZES.items()}
    plan = {
        "browser": chromium,
        "screenshots": str(screenshots),
        "url": service.front.url,
        "walks": SHORT_WALKS if SHORT else paths_for(houses["many"]),
        "houses": [
            *(
                {
                    "house": name,
                    "link": link(service, house.owner),
                    "paths": paths_for(house),
                    "screens": SCREENS[:1] if SHORT and name == "empty" else SCREENS,
                }
                for name, house in houses.items()
            ),
            {
                "house": "operator",
                "link": link(service, service.identity.operator()),
                "paths": [OPERATIONS],
                "screens": SCREENS,
            },
            {"house": "stranger", "link": None, "paths": OPEN, "screens": SCREENS},
        ],
        "plain": {"code": link(service, houses["many"].owner).partition("#")[2], "key": "without scripts"},
    }
    path = screenshots / "plan.json"
    path.write_text(json.dumps(plan))
    ran = run(["sh", "-c", f"exec node {HERE}/console.mjs < {path}"], screenshots, seconds=SECONDS)
    path.unlink()
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def link(service: ModelService, owner: Person) -> str:
    with service.database.transaction() as session:
        return issue_link(session, actor=OPERATOR, user_id=owner.user_id).address(service.front.url)


def wrong(looks: list[dict[str, Any]], what: str) -> list[Any]:
    return [(at["house"], at["path"], at["scheme"], at["width"], at[what]) for at in looks if at[what]]


def test_every_page_opens_in_every_scheme_and_width(seen: Any) -> None:
    assert [(at["path"], at["status"]) for at in seen["looks"] if at["status"] != 200] == []


def test_every_page_of_the_console_is_covered(seen: Any) -> None:
    looked_at = {at["path"] for at in seen["looks"] if at["house"] in ("many", "operator")}
    shapes = {re.sub(r"<\w+:\w+>", "[^/]+", path) for path in ALL - NO_PAGES}
    assert [shape for shape in shapes if not any(re.fullmatch(shape, path) for path in looked_at)] == []


def test_axe_finds_nothing(seen: Any) -> None:
    assert wrong(seen["looks"], "violations") == []


def test_nothing_is_wider_than_the_screen(seen: Any) -> None:
    assert [at for at in wrong(seen["looks"], "overflow") if at[-1] > 0] == []


def test_browser_console_is_clean_and_names_run_no_script(seen: Any) -> None:
    assert wrong(seen["looks"], "complaints") == []


def test_every_control_is_reached_by_keyboard_with_visible_focus(seen: Any) -> None:
    assert [(at["path"], at["missed"]) for at in seen["walks"] if at["missed"]] == []
    assert [(at["path"], at["faint"]) for at in seen["walks"] if at["faint"]] == []


def test_the_menu_of_a_phone_opens_and_closes_by_keyboard(seen: Any) -> None:
    assert seen["menu"] == {"opened": True, "closed": True, "returned": True}


def test_playground_streams_text_and_shows_the_cost(seen: Any) -> None:
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
