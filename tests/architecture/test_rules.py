"""Rules of the style guide about code structure that neither mypy nor ruff checks."""

import ast
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import deploy
import shared
import web
import workers
from shared.config.settings import Settings
from shared.errors import DomainError, Kind
from tests.support.processes.collected_cases import found
from tests.support.web.web_process import Front
from web.error_responses.error_formats import OAUTH_CODES
from web.error_responses.html_errors import is_console_path
from web.error_responses.status_codes import STATUSES
from web.framework.authentication import Authentication
from web.framework.routes import Route

ROOT = Path(web.__file__).parents[1]
PACKAGES = (web, workers, shared, deploy)
# Codes that several classes share deliberately: one meaning on the wire, detected in different places.
SHARED_CODES = {
    "unavailable": "a lock not obtained in time is one way of being unavailable",
    "overloaded": "a model's caller need not know whether we or the provider have too much to do",
    "provider_error": "a lost call is to its caller what a failed provider is",
    "insufficient_credits": "too few credits for a call, or for the storage that is owed: either way a top-up helps",
    "model_authorization_denied": "whether a caller may call no model or not this one, its administrator must allow it",
    "invalid_request": "the nearest word OAuth has for several things that are wrong",
}


def sources() -> Iterator[tuple[Path, str]]:
    """Return every module of the product by its path within the project."""
    for package in PACKAGES:
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text()


def error_classes() -> set[type[DomainError]]:
    """Return every error class of the product."""
    for package in (web, shared):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if ".migrations." not in module.name and module.name != "web.wsgi":
                import_module(module.name)

    def below(error: type[DomainError]) -> set[type[DomainError]]:
        return {error}.union(*map(below, error.__subclasses__()))

    found = below(DomainError) - {DomainError}
    return {
        error for error in found if not error.__module__.startswith("tests.") and error.__name__[0] != "_"
    }


def test_imports_go_one_way() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_only_the_database_module_commits() -> None:
    for path, source in found(sources()):
        if path == Path("shared/db/database.py"):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert node.func.attr != "commit", f"{path}:{node.lineno}"


def test_every_error_class_has_its_own_code_or_shares_one_on_purpose() -> None:
    by_code: dict[str, set[type[DomainError]]] = defaultdict(set)
    for error in found(error_classes()):
        # A class with subclasses is never raised itself and has no code.
        if not error.__subclasses__():
            by_code[error.code].add(error)
    shared_codes = {code for code, classes in by_code.items() if len(classes) > 1}
    assert shared_codes - set(SHARED_CODES) == set()
    for code in shared_codes - OAUTH_CODES:
        assert len({STATUSES[error.kind] for error in by_code[code]}) == 1, code


def test_every_error_class_has_a_sentence_and_a_known_kind() -> None:
    for error in found(error_classes()):
        assert error.kind in Kind
        sentence = inspect.cleandoc(error.__doc__ or "").split("\n\n")[0]
        assert error.__doc__ != DomainError.__doc__, error
        assert sentence.endswith("."), error
        assert re.fullmatch(r"[a-z][a-z0-9_]*", error.code), error


def test_every_kind_has_a_status() -> None:
    assert set(STATUSES) == set(Kind)


def test_every_setting_is_used() -> None:
    """A setting that no code reads has no effect, although its documentation promises one."""
    product = "\n".join(source for path, source in sources() if path != Path("shared/config/settings.py"))
    environment = "\n".join(
        path.read_text() for path in (ROOT / "deploy").rglob("*") if path.is_file() and path.suffix != ".pyc"
    )
    for name in Settings.model_fields:
        assert name in product or name.upper() in product + environment, name


def test_bodies_are_read_only_where_the_caller_is_rechecked() -> None:
    """Small bodies are read by `Call`; multipart content is read by routes whose commit checks the authority again."""
    in_parts = {"web/files/writes.py", "web/files/resumable.py", "web/media/pushes.py"}
    readers = {
        str(path): node.func
        for path, source in found(sources())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and re.search(
            r"^(read_small_body|take_arrived|open_body)$|\breceptions\.admit$", ast.unparse(node.func)
        )
    }
    assert readers.keys() == in_parts | {"web/framework/calls.py", "web/http/receive_deadlines.py"}


def operations(front: Front) -> list[Route]:
    declared: list[Route] = front.app.extensions["routes"]
    return declared


def test_every_route_is_declared_and_states_its_authentication(front: Front) -> None:
    declared = {(operation.path, operation.method) for operation in operations(front)}
    mounted = {
        (rule.rule, method)
        for rule in front.app.url_map.iter_rules()
        for method in (rule.methods or set())
        if method != "HEAD" or "GET" not in (rule.methods or set())
    }
    assert mounted == declared
    for operation in found(operations(front)):
        assert isinstance(operation.authentication, Authentication)


def test_every_route_is_in_the_document(front: Front) -> None:
    document = front.get("/openapi.json").json
    assert document is not None
    described = {
        (re.sub(r"\{\w+\}", "{}", path), method.upper())
        for path, methods in document["paths"].items()
        for method in methods
        if method != "head" or "get" not in methods
    }
    shown = {
        (re.sub(r"<[^>]+>", "{}", operation.path), operation.method)
        for operation in operations(front)
        if not operation.hidden
    }
    assert described == shown
    hidden = {operation.path for operation in operations(front) if operation.hidden}
    assert {path for path in hidden if not is_console_path(path)} == {
        "/static/<state>/<name>",
        "/docs/guide/",
        "/docs/guide/<path:path>",
    }


def test_public_routes_are_exactly_those_of_the_list() -> None:
    """If a route was made public deliberately, add it to this list."""
    from web.app import ROUTES

    public = {
        operation.path
        for routes in ROUTES
        for operation in routes.declared
        if operation.authentication is Authentication.PUBLIC
    }
    assert public == {
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/docs",
        "/docs/<operation>",
        "/docs/schemas/<name>",
        "/docs/guide/",
        "/docs/guide/<path:path>",
        "/",
        "/static/<state>/<name>",
        "/console/in",
        "/console/in/provider",
        "/console/in/provider/back",
        "/problems",
        "/problems/<code>",
        "/.well-known/agent-card.json",
        "/agents/<id:deployment_id>/.well-known/agent-card.json",
        "/extensions",
        "/extensions/<name>/<version>",
        "/extensions/<name>/<version>/schema.json",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-protected-resource",
        "/.well-known/jwks.json",
        "/invitations/register",
    }


def test_only_content_links_have_a_public_preflight() -> None:
    from web.app import ROUTES

    assert [
        (operation.method, operation.path)
        for routes in ROUTES
        for operation in routes.declared
        if operation.authentication is Authentication.PREFLIGHT
    ] == [("OPTIONS", "/files/<id:file_id>/content")]


def test_every_documented_error_of_file_routes_is_tested(front: Front) -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests" / "web").rglob("test_*.py"))
    documented = {
        error
        for operation in operations(front)
        if operation.path.startswith("/files")
        for error in operation.errors
    }
    assert [e.code for e in documented if f'"{e.code}"' not in tests and e.__name__ not in tests] == []


def test_every_summary_is_one_readable_line(front: Front) -> None:
    for operation in found(operations(front)):
        assert operation.summary, operation.path
        assert len(operation.summary) <= 110, operation.path


def test_every_tests_directory_is_a_package() -> None:
    directories = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert [str(at) for at in directories if not (at / "__init__.py").exists()] == []


def test_no_module_has_a_vague_name() -> None:
    nothing = {"utils", "helpers", "common", "manager", "service", "misc"}
    assert [str(path) for path, _ in sources() if path.stem in nothing] == []


def test_broad_excepts_are_few_and_give_their_reason() -> None:
    for path, source in found(sources()):
        for line in source.splitlines():
            if re.search(r"except (Exception|BaseException)\b.*:", line) and "BLE001" in line:
                assert re.search(r"BLE001 (\(|- )\w+", line), path
