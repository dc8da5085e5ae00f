"""Functions for administrative commands: options, the database transaction, JSON output and error messages.

A caller who can read the database's credentials acts as the operator. The commands apply the same domain rules as the
HTTP API, and use the same names of JSON members.
"""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import click
from pydantic.alias_generators import to_camel

from deploy.cli.client.rest_client import find_active_organization
from deploy.cli.display.output import print_document
from deploy.cli.exit_codes import failure_of
from shared.config.settings import Settings, load_settings
from shared.config.settings_errors import SettingsInvalid
from shared.db.database import Database, Session
from shared.errors import DomainError
from shared.identity.access.authorization import OPERATOR
from shared.pagination import DEFAULT_LIMIT, MAX_LIMIT, Page

Act = Callable[..., Any]
Listing = TypeVar("Listing", bound=Callable[..., Any])
PROGRESS_SECONDS = 5.0


def _require(context: click.Context, parameter: click.Parameter, value: UUID | None) -> UUID:
    """Return the id. Raises MissingParameter if neither the command line nor the default supplied an id."""
    # Check for None here: click accepts a default function that returns None, even with `required=True`.
    if value is None:
        raise click.MissingParameter(ctx=context, param=parameter)
    return value


organization_option = click.option(
    "--organization",
    "organization_id",
    type=click.UUID,
    required=True,
    default=find_active_organization,
    callback=_require,
    help="Id of the organization.",
    show_default="the active organization; required if DATABASE_URL is set",
)
INSTANT = click.DateTime(formats=["%Y-%m-%dT%H:%M:%SZ"])


def required_id(resource: str) -> Callable[[Listing], Listing]:
    """Create a required option for a resource's id, such as `--deployment` for the parameter `deployment_id`."""
    text = f"Id of the {resource}."
    return click.option(f"--{resource}", f"{resource}_id", type=click.UUID, required=True, help=text)


@contextmanager
def installation() -> Iterator[tuple[Database, Settings]]:
    """Yield the database and the settings that the environment configures.

    Raises a one-line ClickException if the settings are invalid or the block raises a DomainError.
    """
    try:
        settings = load_settings()
    except SettingsInvalid as error:
        raise click.ClickException(str(error)) from None
    database = Database.of(settings, pool_size=2)
    try:
        yield database, settings
    except DomainError as error:
        raise failure_of(error) from error
    finally:
        database.dispose()


@contextmanager
def administration() -> Iterator[Session]:
    """Yield a session on the installation's database. The block is one transaction."""
    with installation() as (database, _), database.transaction() as session:
        yield session


def show(resource: object, **secrets: object) -> None:
    """Print a resource, together with secrets that the service shows only once."""
    print_json(document(resource) | document_of(secrets))


def show_page(name: str, page: Page[Any]) -> None:
    """Print a page of resources. `name` is the JSON member that contains the list."""
    shown = {name: [document(item) for item in page.items], "nextCursor": page.next_cursor}
    print_json(shown)


def print_json(shown: dict[str, Any]) -> None:
    """Print a document: as a table at a terminal, otherwise as JSON."""
    print_document(shown)


def document(resource: Any) -> dict[str, Any]:
    """Return a resource's fields as JSON members, with camelCase names."""
    names = [field.name for field in dataclasses.fields(resource)]
    return document_of({name: getattr(resource, name) for name in names})


def add_actions(
    group: click.Group,
    resource: str,
    *,
    printer: Callable[[Any], None] = show,
    rest_option: Callable[[click.Command], click.Command] = lambda command: command,
    **acts: tuple[Act, str],
) -> None:
    """Add one command for each action. A command takes a resource's id and prints the resource that the action returns.

    `acts` maps a command's name to its domain function and its help. `rest_option` adds an option that only the REST
    route needs, such as the parent resource in its path.
    """
    for name, (act, summary) in acts.items():
        argument = click.Argument(["resource_id"], type=click.UUID, metavar="ID")
        run = partial(_act, act, resource, printer)
        command = click.Command(name.replace("_", "-"), callback=run, params=[argument], help=summary)
        group.add_command(rest_option(command))


def add_list(
    group: click.Group,
    act: Act,
    summary: str,
    *,
    of: str | None = None,
    name: str = "list",
    shown: str | None = None,
) -> None:
    """Add a command that prints one page of resources: the resources of the parent `of`, or of the installation."""
    # Name the list as the HTTP API does, so that the command prints the same document over both transports.
    shown = shown or to_camel(str(group.name).replace("-", "_"))

    def run(**given: Any) -> None:
        with administration() as session:
            page = act(session, actor=OPERATOR, **given)
        show_page(shown, page)

    command = page_options(click.Command(name, callback=run, help=summary))
    if of == "organization":
        command = organization_option(command)
    elif of:
        command = required_id(of)(command)
    group.add_command(command)


def page_options(command: Listing) -> Listing:
    """Add `--cursor` and `--limit` to a listing command."""
    return click.option("--cursor", help="`nextCursor` of the previous page.")(limit_option()(command))


def limit_option(default: int = DEFAULT_LIMIT) -> Callable[[Listing], Listing]:
    """Create the `--limit` of a listing command."""
    return click.option(
        "--limit",
        type=click.IntRange(1, MAX_LIMIT),
        default=default,
        show_default=True,
        help="Maximum number of items on the page.",
    )


def _act(act: Act, resource: str, printer: Callable[[Any], None], resource_id: UUID, **_: object) -> None:
    with administration() as session:
        # `_` takes the options that only the REST route needs, such as the parent resource in its path.
        changed = act(session, actor=OPERATOR, **{f"{resource}_id": resource_id})
    # Print after the commit: the output must not report a change that was rolled back.
    if changed is not None:
        printer(changed)


def choice(values: Iterable[StrEnum]) -> click.Choice[str]:
    """Return a parameter type that accepts the values of an enumeration."""
    return click.Choice(sorted(value.value for value in values))


def in_utc(moment: datetime | None) -> datetime | None:
    """Return a time with the time zone UTC, because click parses the `Z` but returns a time without a zone."""
    return moment.replace(tzinfo=UTC) if moment else None


def document_of(members: dict[str, Any]) -> dict[str, Any]:
    """Return members as JSON: camelCase names, UTC times, and ids as text."""
    return {to_camel(name): _plain(value) for name, value in members.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        # Replace the offset: isoformat() writes `+00:00`, and the HTTP API writes `Z`.
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return document(value)
    return document_of(value) if isinstance(value, dict) else value


class Progress:
    """Prints the progress of a long command to the error output, at most every five seconds."""

    def __init__(self) -> None:
        self._done: Counter[str] = Counter()
        # Start with the present time, so that a command that ends within the interval prints no progress.
        self._printed_at = time.monotonic()

    def add(self, what: str, count: int) -> None:
        """Add to a counter, and print all counters if the last line was printed at least five seconds ago."""
        self._done[what] += count
        if time.monotonic() - self._printed_at > PROGRESS_SECONDS:
            self._printed_at = time.monotonic()
            # Print to the error output, because scripts parse standard output as the JSON result.
            click.echo(", ".join(f"{done:,} {name}" for name, done in self._done.items()), err=True)
