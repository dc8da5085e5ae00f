"""References resolve: sections of the docs, links between pages, and files that pages name."""

import ast
import posixpath
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import web
from tests.support.processes.collected_cases import found
from tests.support.processes.named_tests import is_test

ROOT = Path(web.__file__).parents[1]
TEXTS = {".py", ".md", ".sql", ".toml", ".yaml", ".yml", ".html", ".conf", ".example", ""}
WALK = re.compile(r"## One [\w ]+, followed through the files\n(.*?)(?=\n## )", re.DOTALL)

BEHIND_A_PORT = {
    "web/server/response_writer.py",
    "shared/credits/sweeps.py",
    "shared/files/blobs/local.py",
    "shared/identity/authentication/authenticator.py",
    "shared/identity/authentication/revalidation.py",
    "shared/models/dialects/chat_requests.py",
}
"""Files reached through a port, the services of the web process, a declaration, or gunicorn, and not by an import."""

_LINK = re.compile(r"\]\(([^()\s]+)\)")
_SECTION = re.compile(r"\bdocs/[\w/-]+\.md(?:#[\w-]+)?")
# Paths in backticks that must exist. Others (`/openapi.json`, `var/…`) are created at run time.
_NAMED = re.compile(r"`((?:\.\./)*[\w][\w./-]*\.(?:py|md|sql|conf|sh|example))`")
_TEST = re.compile(r"`((?:sdk/)?tests/[\w/]+\.py::\w+)`")
_ELSEWHERE = re.compile(
    r"\bspecification,? §?\d|\(decisions?[ ,)]|\bdecisions \d|\b(?:interface|targets)\.md\b", re.IGNORECASE
)


@cache
def files() -> tuple[str, ...]:
    """Return every file of the project by its path, committed or not."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(path for path in run.stdout.split("\n") if path and (ROOT / path).is_file())


def texts() -> Iterator[tuple[str, str]]:
    own = Path(__file__).relative_to(ROOT).as_posix()
    for path in files():
        if Path(path).suffix in TEXTS and path != own:
            yield path, (ROOT / path).read_text(errors="ignore")


def pages() -> Iterator[tuple[str, str]]:
    return ((path, text) for path, text in texts() if path.endswith(".md"))


@cache
def anchors(page: str) -> frozenset[str]:
    """Return the explicit anchors of a page and the anchors that are generated from its headings."""
    text = (ROOT / page).read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return frozenset(slugs.union(re.findall(r'<a id="([\w-]+)"></a>', text)))


def leads_nowhere(target: str) -> bool:
    page, _, anchor = target.partition("#")
    if not (ROOT / page).exists():
        return True
    return bool(anchor) and anchor not in anchors(page)


def test_every_cited_section_exists() -> None:
    found = [(path, target) for path, text in texts() for target in _SECTION.findall(text)]
    assert len(found) > 50
    assert [(path, target) for path, target in found if leads_nowhere(target)] == []


def test_every_link_between_pages_resolves() -> None:
    for path, text in found(pages()):
        for link in _LINK.findall(text):
            if re.match(r"[a-z]+:", link):
                continue
            page, _, anchor = link.partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), page)) if page else path
            assert not leads_nowhere(f"{target}#{anchor}" if anchor else target), (path, link)


def test_every_file_that_a_page_names_exists() -> None:
    for path, text in found(pages()):
        for name in _NAMED.findall(text):
            beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            # The docs use bare names like `errors.py` for files that many packages have; a domain's README means its
            # own file.
            recurs = "/" not in name and (path.startswith("docs/") or "/" not in path)
            somewhere = recurs and any(file.endswith(f"/{name}") for file in files())
            assert somewhere or (ROOT / name).exists() or (ROOT / beside).exists(), (path, name)


def test_each_test_that_an_example_names_exists() -> None:
    """Each part of a worked example names the test that fails without it; a renamed test is renamed there."""
    named = {
        name
        for path, text in pages()
        if path.startswith("docs/contributing/")
        for name in _TEST.findall(text)
    }
    assert len(named) > 50
    assert sorted(name for name in named if not is_test(name)) == []


def test_code_walks_name_files_by_their_full_path() -> None:
    walks = WALK.findall((ROOT / "README.md").read_text())
    assert len(walks) == 4
    for walk in walks:
        named = re.findall(r"`([\w./-]+(?:\.py|/))`", walk)
        assert len(named) >= 5
        assert [name for name in named if not (ROOT / name).exists()] == []


def test_code_walk_follows_imports() -> None:
    """Each file of a walk imports, or is imported by, another file of the walk.

    If this fails, the walk skips a file on the way, or the file belongs on another page.
    """
    for walk in found(WALK.findall((ROOT / "README.md").read_text())):
        named = dict.fromkeys(re.findall(r"`([\w./-]+\.py)`", walk))
        imported = {name: imports_of(name) for name in named}
        for name in named:
            others = [other for other in named if other != name]
            met = any(name in imported[other] or other in imported[name] for other in others)
            assert met or name in BEHIND_A_PORT, name


def imports_of(path: str) -> frozenset[str]:
    """Return the files that a module imports, at its top or in functions. A package includes all its modules."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            base = node.module.replace(".", "/")
            found.update({f"{base}.py"}, {f"{base}/{alias.name}.py" for alias in node.names})
    return frozenset(found)


def test_no_text_cites_a_source_outside_the_project() -> None:
    found = [(path, match[0]) for path, text in texts() for match in _ELSEWHERE.finditer(text)]
    assert found == []


def test_every_section_of_the_specification_has_an_explicit_anchor() -> None:
    for path, text in found(pages()):
        if path.startswith("docs/specification/") and not path.endswith("README.md"):
            assert len(re.findall(r"^## ", text, re.MULTILINE)) == len(
                re.findall(r'<a id="[\w-]+"></a>\n## ', text)
            )
