"""Administrative commands over REST: the same command lines, where a login or SERVICE_BASE_URL names a service.

DATABASE_URL comes first: who sets it administers that installation by its database. Then SERVICE_BASE_URL, QM_HOME, the
login, and what `make up` runs here (`deploy/cli/client/saved_logins.py`). One mechanism serves all
(`deploy/cli/rest/rest_operations.py`).
"""

import string
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from typing import Any
from urllib.parse import quote

import click
from pydantic.alias_generators import to_camel

from deploy.cli.client.rest_client import service
from deploy.cli.client.saved_logins import find_remote_login, is_database_named
from deploy.cli.command_context import document_of, in_utc, print_json
from deploy.cli.exit_codes import ExitCode, Failure
from deploy.cli.rest.rest_operations import OPERATIONS, Operation
from deploy.cli.rest.rest_parameters import Parameters

_BODIES = frozenset({"POST", "PUT", "PATCH"})


def reach(command: click.Command, path: str) -> click.Command:
    """Let a command, and those in it, work from afar too."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            reach(inner, f"{path} {name}")
    elif command.callback is not None:
        command.callback = _near_or_far(path, command.callback)
    return command


def is_remote() -> bool:
    """Tell whether administrative commands go over REST."""
    return not is_database_named() and find_remote_login() is not None


def _near_or_far(path: str, near: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(near)
    def run(*arguments: Any, **given: Any) -> Any:
        if not is_remote():
            return near(*arguments, **given)
        if path not in OPERATIONS:
            raise Failure(
                f"`quartermaster {path}` works beside the installation only: set DATABASE_URL or QM_HOME there,"
                " or `quartermaster logout`.",
                ExitCode.WRONG_USAGE,
            )
        return _ask(OPERATIONS[path], given)

    return run


def _ask(operation: Operation, given: Parameters) -> None:
    target, query, body = write_request(operation, given)
    with service() as client:
        answer = client.raw.request(operation.method, target, query=query, json=body)
    if answer is not None:
        print_json(operation.show(answer))
        if answer.get("isUsable") is False:
            raise click.exceptions.Exit(ExitCode.FAILED)


def write_request(
    operation: Operation, given: Parameters
) -> tuple[str, dict[str, str], dict[str, Any] | None]:
    """Write the path, the query and the JSON of what a command was given."""
    prepared = operation.prepare(
        {name: in_utc(value) if isinstance(value, datetime) else value for name, value in given.items()}
    )
    names = {name for _, name, _, _ in string.Formatter().parse(operation.path) if name}
    if missing := [name for name in names if prepared.get(name) is None]:
        option = missing[0].removesuffix("_id").replace("_", "-")
        raise click.UsageError(f"From afar this needs --{option}.")
    path = operation.path.format(**{name: quote(str(prepared[name]), safe="") for name in names})
    rest = {name: value for name, value in prepared.items() if name not in names and value is not None}
    is_body = operation.method in _BODIES
    in_query = {name: value for name, value in rest.items() if not is_body or name in operation.query}
    query = {name: str(value) for name, value in _spell(operation, in_query).items()}
    if not is_body or prepared.keys() <= names | operation.query:
        return path, query, None
    sent = {name: value for name, value in rest.items() if name not in in_query and value != ()}
    return path, query, _spell(operation, sent)


def _spell(operation: Operation, members: Mapping[str, Any]) -> dict[str, Any]:
    """Spell names as the route does; those in a JSON object that a person gave stay as they are."""
    given = {name: value for name, value in members.items() if isinstance(value, dict)}
    return {
        name if operation.is_snake_case else to_camel(name): given.get(
            name, *document_of({name: value}).values()
        )
        for name, value in members.items()
    }
