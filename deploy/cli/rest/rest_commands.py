"""Run administrative commands over REST. The command lines are the same as over the database.

The target is, in this order: DATABASE_URL (over the database), SERVICE_BASE_URL, QM_HOME (over the database), the saved
login, and the installation that `make up` runs here (`deploy/cli/client/saved_logins.py`). The table of
`deploy/cli/rest/rest_operations.py` maps each command to its route.
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
from deploy.cli.client.saved_logins import find_remote_login, is_database_configured
from deploy.cli.command_context import document_of, in_utc, print_json
from deploy.cli.exit_codes import ExitCode, Failure
from deploy.cli.rest.rest_operations import OPERATIONS, Operation
from deploy.cli.rest.rest_parameters import Parameters

_BODIES = frozenset({"POST", "PUT", "PATCH"})


def enable_rest(command: click.Command, path: str) -> click.Command:
    """Return the command, changed so that it and its subcommands use REST if a remote service is configured."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            enable_rest(inner, f"{path} {name}")
    elif command.callback is not None:
        command.callback = _database_or_rest(path, command.callback)
    return command


def is_remote() -> bool:
    """Return whether administrative commands use REST and not the database."""
    return not is_database_configured() and find_remote_login() is not None


def _database_or_rest(path: str, run_on_database: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run_on_database)
    def run(*arguments: Any, **given: Any) -> Any:
        if not is_remote():
            return run_on_database(*arguments, **given)
        # Refuse the command and do not use this host's database: the caller signed in to another installation.
        if path not in OPERATIONS:
            raise Failure(
                f"`quartermaster {path}` does not work over REST: run it on the installation's host with DATABASE_URL"
                " or QM_HOME set, or after `quartermaster logout`.",
                ExitCode.WRONG_USAGE,
            )
        return _send(OPERATIONS[path], given)

    return run


def _send(operation: Operation, given: Parameters) -> None:
    target, query, body = write_request(operation, given)
    with service() as client:
        response = client.raw.request(operation.method, target, query=query, json=body)
    # Print nothing after a 204, which has no body. Over the database the command prints nothing either.
    if response is not None:
        print_json(operation.show(response))
        # Fail `endpoints check` if the endpoint cannot be used, as this command does over the database.
        if response.get("isUsable") is False:
            raise click.exceptions.Exit(ExitCode.FAILED)


def write_request(
    operation: Operation, given: Parameters
) -> tuple[str, dict[str, str], dict[str, Any] | None]:
    """Return the path, the query and the JSON body for a command's parameters.

    The body is None if the route accepts no body. Raises UsageError if a parameter that the path needs is missing.
    """
    prepared = operation.prepare(
        {name: in_utc(value) if isinstance(value, datetime) else value for name, value in given.items()}
    )
    # Find the variables of the path, because they must not be repeated in the query or the body.
    names = {name for _, name, _, _ in string.Formatter().parse(operation.path) if name}
    if missing := [name for name in names if prepared.get(name) is None]:
        option = missing[0].removesuffix("_id").replace("_", "-")
        raise click.UsageError(f"Over REST this command needs --{option}.")
    # Quote every character (safe=""): a slash in the account of a network must not add a path segment.
    path = operation.path.format(**{name: quote(str(prepared[name]), safe="") for name in names})
    rest = {name: value for name, value in prepared.items() if name not in names and value is not None}
    is_body = operation.method in _BODIES
    in_query = {name: value for name, value in rest.items() if not is_body or name in operation.query}
    query = {name: str(value) for name, value in _to_wire_names(operation, in_query).items()}
    # Send no body if all parameters are in the path or query: routes of actions such as `suspend` accept no body.
    if not is_body or prepared.keys() <= names | operation.query:
        return path, query, None
    # Omit empty tuples, which click passes for omitted repeatable options, so that the route's default applies.
    sent = {name: value for name, value in rest.items() if name not in in_query and value != ()}
    return path, query, _to_wire_names(operation, sent)


def _to_wire_names(operation: Operation, members: Mapping[str, Any]) -> dict[str, Any]:
    """Return members with the names that the route uses. JSON objects of the caller keep their member names."""
    given = {name: value for name, value in members.items() if isinstance(value, dict)}
    return {
        name if operation.is_snake_case else to_camel(name): given.get(
            name, *document_of({name: value}).values()
        )
        for name, value in members.items()
    }
