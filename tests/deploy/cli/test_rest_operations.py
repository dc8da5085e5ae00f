"""The requests of administrative commands over REST match the API reference."""

import io
from datetime import UTC, date, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import click
import pytest
from click.testing import CliRunner

from deploy.cli.commands.credits import Credits
from deploy.cli.main import main
from deploy.cli.rest.rest_commands import write_request
from deploy.cli.rest.rest_operations import OPERATIONS
from tests.deploy.cli.test_administrative_commands import administrative_commands
from tests.support.web.openapi_documents import openapi_document

HERE_ONLY = {
    "blob-store adopt",
    "blob-store move",
    "blob-store show",
    "console link",
    "console sign-out",
    "credits enter-payment",
    "credits prove",
    "credits recount-storage",
    "reencrypt",
}
"""Commands that work on the installation's host only, and have no route."""


def find(command: str) -> click.Command:
    found: click.Command = main
    for word in command.split():
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found), word)
        assert inner is not None, command
        found = inner
    return found


def given_to(command: click.Command, directory: Path) -> dict[str, Any]:
    """Return a value for every parameter of a command."""
    return {str(at.name): value_of(at, directory) for at in command.params}


def value_of(parameter: click.Parameter, directory: Path) -> Any:
    kind = parameter.type
    if parameter.name == "only":
        return (("model", "acme/one"),)
    if isinstance(kind, click.Choice):
        value: Any = next(iter(kind.choices))
    elif isinstance(kind, click.DateTime):
        value = date(2026, 11, 1) if parameter.callback else datetime(2026, 11, 1)  # noqa: DTZ001 (as click returns it)
    elif isinstance(kind, click.File):
        value = io.StringIO('{"a": "b"}')
    elif isinstance(kind, click.Path):
        value = directory / "file"
        value.write_text("text")
    elif kind is click.UUID:
        value = uuid4()
    elif isinstance(kind, (Credits, click.IntRange)):
        value = 1_000_000
    elif isinstance(kind, click.types.BoolParamType):
        value = parameter.name != "is_operator"
    else:
        value = "text"
    return (value,) if getattr(parameter, "multiple", False) else value


def described(method: str, path: str) -> tuple[str, dict[str, Any]]:
    """Find the operation of a path in the document; its variables may have other names there."""
    asked = path.split("/")
    for template, methods in openapi_document()["paths"].items():
        pairs = list(zip_longest(template.split("/"), asked))
        is_it = all(part == one or (part and one and part.startswith("{")) for part, one in pairs)
        if is_it and method.lower() in methods:
            return template, methods[method.lower()]
    raise AssertionError((method, path))


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = openapi_document()["components"]["schemas"][name] if name else schema
    return found


def properties(schema: dict[str, Any]) -> set[str]:
    found = resolve(schema)
    inner = [*found.get("anyOf", ()), *found.get("oneOf", ()), *found.get("allOf", ())]
    return set(found.get("properties", ())).union(*map(properties, inner))


@pytest.mark.parametrize("command", OPERATIONS)
def test_a_command_sends_what_its_operation_takes(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.cli.rest.rest_parameters.require_active", lambda _: None)
    given = given_to(find(command), tmp_path)
    if command == "schedules create":
        given["message"] = None
    operation = OPERATIONS[command]
    path, query, body = write_request(operation, given)
    _, found = described(operation.method, path)
    parameters = [
        openapi_document()["components"]["parameters"][at["$ref"].rpartition("/")[2]] if "$ref" in at else at
        for at in found.get("parameters", ())
    ]
    assert query.keys() <= {at["name"] for at in parameters if at["in"] == "query"}
    content = found.get("requestBody", {}).get("content", {}).get("application/json", {})
    assert (body or {}).keys() <= properties(content.get("schema", {}))
    assert bool(content) is (body is not None), "a body is sent where one is read"


def test_every_administrative_command_works_from_afar_or_is_known_not_to() -> None:
    assert {" ".join(words) for words in administrative_commands()} == OPERATIONS.keys() | HERE_ONLY
    assert not OPERATIONS.keys() & HERE_ONLY


def test_moments_and_amounts_and_names_are_spelled_as_the_wire_spells_them() -> None:
    user_id = UUID(int=1)
    given = {
        "user_id": user_id,
        "name": "Key",
        "organization_id": None,
        "expires_at": datetime(2999, 1, 1, tzinfo=UTC).replace(tzinfo=None),
    }
    assert write_request(OPERATIONS["api-keys issue"], given) == (
        "/admin/api-keys",
        {},
        {"userId": str(user_id), "name": "Key", "expiresAt": "2999-01-01T00:00:00Z"},
    )
    amounts = {"organization_id": user_id, "budget_id": user_id, "amount": 2_500_000}
    assert write_request(OPERATIONS["budgets set-amount"], amounts)[2] == {"amount": "2.5"}
    kid = write_request(OPERATIONS["signing-keys revoke"], {"kid": "a/../b"})[0]
    assert kid == "/admin/signing-keys/a%2F..%2Fb/revoke"


def test_a_command_for_the_installations_own_machines_says_so_from_afar() -> None:
    environment = {"SERVICE_BASE_URL": "http://127.0.0.1:9", "SERVICE_API_KEY": "svk_x", "DATABASE_URL": None}
    result = CliRunner().invoke(main, ["reencrypt"], env=environment)
    assert (result.exit_code, "does not work over REST" in result.stderr) == (2, True)
