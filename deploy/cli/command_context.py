"""What the administrative commands share: the database, as the operator; its output; errors as one line.

Who can run these commands holds the database's credentials, and acts as the operator. The domain's rules and the
spelling of the JSON are those of the HTTP API.
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
    """Refuse a default that found nothing, which click takes for a value."""
    if value is None:
        raise click.MissingParameter(ctx=context, param=parameter)
    return value


organization = click.option(
    "--organization",
    "organization_id",
    type=click.UUID,
    required=True,
    default=find_active_organization,
    callback=_require,
    help="The id of the organization.",
    show_default="the active one, unless DATABASE_URL is set",
)
INSTANT = click.DateTime(formats=["%Y-%m-%dT%H:%M:%SZ"])


def required_id(resource: str) -> Callable[[Listing], Listing]:
    """Make the option that names what a command is about, by its id: `--deployment` gives `deployment_id`."""
    text = f"The id of the {resource}."
    return click.option(f"--{resource}", f"{resource}_id", type=click.UUID, required=True, help=text)


@contextmanager
def installation() -> Iterator[tuple[Database, Settings]]:
    """Open the database of the environment's settings; what goes wrong ends the command with one line."""
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
    """Open one transaction on it."""
    with installation() as (database, _), database.transaction() as session:
        yield session


def show(resource: object, **secrets: object) -> None:
    """Print a resource as JSON, with what is shown only now."""
    print_json(document(resource) | document_of(secrets))


def show_page(name: str, page: Page[Any]) -> None:
    """Print a page of resources under their name."""
    shown = {name: [document(item) for item in page.items], "nextCursor": page.next_cursor}
    print_json(shown)


def print_json(shown: dict[str, Any]) -> None:
    """Print what was found: JSON, or a table at a terminal."""
    print_document(shown)


def document(resource: Any) -> dict[str, Any]:
    """Give a resource's fields as JSON spells them."""
    names = [field.name for field in dataclasses.fields(resource)]
    return document_of({name: getattr(resource, name) for name in names})


def acts_on(
    group: click.Group,
    resource: str,
    *,
    printed: Callable[[Any], None] = show,
    far_option: Callable[[click.Command], click.Command] = lambda command: command,
    **acts: tuple[Act, str],
) -> None:
    """Add commands that take the id of a resource, do one thing to it, and print what became of it.

    Each is named with the function of the domain that does it, and with its help. `far_option` adds what their routes
    need besides.
    """
    for name, (act, summary) in acts.items():
        argument = click.Argument(["resource_id"], type=click.UUID, metavar="ID")
        run = partial(_act, act, resource, printed)
        command = click.Command(name.replace("_", "-"), callback=run, params=[argument], help=summary)
        group.add_command(far_option(command))


def lists(
    group: click.Group,
    act: Act,
    summary: str,
    *,
    of: str | None = None,
    name: str = "list",
    shown: str | None = None,
) -> None:
    """Add a command that prints a page of resources, of one other resource or of all there are."""
    shown = shown or to_camel(str(group.name).replace("-", "_"))

    def run(**given: Any) -> None:
        with administration() as session:
            page = act(session, actor=OPERATOR, **given)
        show_page(shown, page)

    command = paged(click.Command(name, callback=run, help=summary))
    if of == "organization":
        command = organization(command)
    elif of:
        command = required_id(of)(command)
    group.add_command(command)


def paged(command: Listing) -> Listing:
    """Give a listing its `--cursor` and `--limit`."""
    return click.option("--cursor", help="The nextCursor of the page before.")(limited()(command))


def limited(default: int = DEFAULT_LIMIT) -> Callable[[Listing], Listing]:
    """Make the `--limit` of a listing."""
    return click.option(
        "--limit",
        type=click.IntRange(1, MAX_LIMIT),
        default=default,
        show_default=True,
        help="How many to list at the most.",
    )


def _act(act: Act, resource: str, printed: Callable[[Any], None], resource_id: UUID, **_: object) -> None:
    with administration() as session:
        changed = act(session, actor=OPERATOR, **{f"{resource}_id": resource_id})
    if changed is not None:
        printed(changed)


def choice(values: Iterable[StrEnum]) -> click.Choice[str]:
    """Let an option take one of these, in the domain's spelling."""
    return click.Choice(sorted(value.value for value in values))


def in_utc(moment: datetime | None) -> datetime | None:
    """Read what was given with `Z` as what it says."""
    return moment.replace(tzinfo=UTC) if moment else None


def document_of(members: dict[str, Any]) -> dict[str, Any]:
    """Give members as JSON spells them."""
    return {to_camel(name): _plain(value) for name, value in members.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return document(value)
    return document_of(value) if isinstance(value, dict) else value


class Progress:
    """Says every few seconds, where messages go, how far a long command is."""

    def __init__(self) -> None:
        self._done: Counter[str] = Counter()
        self._said_at = time.monotonic()

    def add(self, what: str, count: int) -> None:
        """Count what was done."""
        self._done[what] += count
        if time.monotonic() - self._said_at > PROGRESS_SECONDS:
            self._said_at = time.monotonic()
            click.echo(", ".join(f"{done:,} {name}" for name, done in self._done.items()), err=True)
