"""The guide: a static site built from the repository's pages, served without permission for foreign scripts."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click import Context

from deploy.cli.main import main
from shared.config.settings import Settings
from tests.support.web.web_process import Front
from web.guide import routes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make guide` does. The generator refuses broken links."""
    built = tmp_path_factory.mktemp("guide")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", "docs/site/mkdocs.yml"]
    subprocess.run([*command, "--site-dir", built], cwd=ROOT, check=True, timeout=120)
    return built


@pytest.fixture
def guide(front: Front, site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    yield from served(front, site, monkeypatch)


@pytest.fixture
def no_guide(front: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    yield from served(front, tmp_path, monkeypatch)


def served(front: Front, site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    monkeypatch.setattr(routes, "_SITE", site)
    forget()
    yield front
    forget()


def forget() -> None:
    routes._files.cache_clear()
    routes._policy.cache_clear()


def test_every_file_of_the_site_has_its_media_type(guide: Front, site: Path) -> None:
    types = set()
    for file in sorted(site.rglob("*")):
        if file.is_file():
            answer = guide.get(f"/docs/guide/{file.relative_to(site)}")
            assert (answer.status_code, answer.data) == (200, file.read_bytes()), file
            types.add(answer.mimetype)
    assert types == {"text/html", "text/css", "text/javascript", "application/json", "image/png"}


def test_a_page_may_run_its_own_scripts_and_no_other(guide: Front) -> None:
    for path in ("", "guides/files/", "reference/settings/", "specification/files/"):
        answer = guide.get(f"/docs/guide/{path}")
        policy = answer.headers["Content-Security-Policy"]
        scripts = re.findall(rb"<script>(.*?)</script>", answer.data, re.DOTALL)
        assert scripts
        for script in scripts:
            assert f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" in policy
        assert "unsafe" not in policy
        assert b"style=" not in answer.data


def test_guide_page_without_trailing_slash_redirects(guide: Front) -> None:
    for path in ("/docs/guide", "/docs/guide/guides/files"):
        answer = guide.get(path)
        assert (answer.status_code, answer.headers["Location"]) == (308, f"{path}/")


def test_files_outside_of_the_site_are_not_served(guide: Front) -> None:
    for path in ("no-such-page", "../routes.py", "..%2froutes.py", "guides/../../routes.py", "/etc/passwd"):
        assert guide.get(f"/docs/guide/{path}").status_code == 404, path


def test_missing_guide_explains_how_to_build_it(no_guide: Front) -> None:
    answer = no_guide.get("/docs/guide/")
    assert answer.status_code == 404
    assert "make guide" in answer.text


def test_the_references_name_every_command_setting_and_error(guide: Front) -> None:
    commands, settings, errors = (
        guide.get(f"/docs/guide/reference/{name}/").text for name in ("commands", "settings", "errors")
    )
    assert [
        name for name in main.list_commands(Context(main)) if f"quartermaster {name}" not in commands
    ] == []
    assert [name for name in Settings.model_fields if name.upper() not in settings] == []
    assert [code for code in codes_of_a_front() if f"<code>{code}</code>" not in errors] == []


def codes_of_a_front() -> list[str]:
    """Return the error codes of the modules that a web process loads; tests load more modules."""
    ask = "import json, web.app, web.openapi.problems as it; print(json.dumps(list(it.list_problems())))"
    found = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, check=True, capture_output=True, timeout=60)
    codes: list[str] = json.loads(found.stdout)
    assert len(codes) > 100
    return codes
