"""The pages in a real browser pass the accessibility checks in light and dark, on a phone and on a desktop."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.openapi.conftest import HERE, run
from tests.support.models.model_service import ModelService

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]
PAGES = (
    *("/", "/docs", "/docs/upload_agent_artifact", "/docs/create_chat_completion", "/docs/schemas/FileBody"),
    *("/problems", "/problems/insufficient_credits", "/problems/invalid_token"),
)


@pytest.fixture(scope="module")
def looks(
    service: ModelService, node: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """Open all pages in both color schemes and both widths."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium: pages are not looked at")
    screenshots = Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    urls = [service.front.url + path for path in PAGES]
    ran = run([shutil.which("node") or "node", HERE / "pages.mjs", browser, screenshots, *urls], screenshots)
    assert ran.returncode == 0, ran.stderr
    seen: list[dict[str, Any]] = json.loads(ran.stdout)
    assert len(seen) == 4 * len(PAGES)
    return seen


def test_browser_receives_a_page_at_every_address(looks: list[dict[str, Any]]) -> None:
    assert {(at["status"], at["type"]) for at in looks} == {(200, "text/html; charset=utf-8")}


def test_axe_finds_nothing(looks: list[dict[str, Any]]) -> None:
    assert [
        (at["url"], at["scheme"], at["width"], at["violations"]) for at in looks if at["violations"]
    ] == []


def test_nothing_is_wider_than_the_screen(looks: list[dict[str, Any]]) -> None:
    assert [(at["url"], at["width"], at["overflow"]) for at in looks if at["overflow"] > 0] == []


def test_browser_console_has_no_errors(looks: list[dict[str, Any]]) -> None:
    assert [(at["url"], at["complaints"]) for at in looks if at["complaints"]] == []


def test_pages_follow_the_scheme_of_the_system(looks: list[dict[str, Any]]) -> None:
    papers = {scheme: {at["paper"] for at in looks if at["scheme"] == scheme} for scheme in ("light", "dark")}
    assert papers == {"light": {"rgb(248, 247, 243)"}, "dark": {"rgb(17, 20, 18)"}}
