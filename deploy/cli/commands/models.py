"""Commands for models: list and ask them over REST; check a catalog's file before the service does, import a list."""

import os
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import IO, Any

import click

from deploy.cli.client.rest_client import service
from deploy.cli.display.output import is_for_a_person, is_json_asked_for, print_document
from deploy.cli.display.streamed_replies import AnswerWriter, read_text
from shared.models.catalog import Catalog
from shared.models.catalog_format import CatalogInvalid, read_catalog
from shared.models.openrouter_import import NotAModelList, import_openrouter

models = click.Group("models", help="List and ask models, and manage their catalog.")


@models.command(
    "ls", help="List the models that may be asked, with their prices in credits per million tokens."
)
def list_models() -> None:
    with service() as client:
        listed: dict[str, Any] = client.raw.request("GET", "/v1/models")
    if not is_for_a_person():
        print_document(listed)
        return
    rows = [
        {
            "id": at["id"],
            "prompt": at["pricing"]["prompt"],
            "completion": at["pricing"]["completion"],
            "contextLength": at["context_length"],
        }
        for at in listed["data"]
    ]
    print_document({"models": rows})


@models.command(
    "ask",
    help="Send TEXT, or standard input, to MODEL and print the answer as it comes; what it cost is said"
    " on the error output. With --json the whole response, at its end.",
)
@click.argument("model")
@click.argument("text", required=False)
@click.option("--instructions", help="What the model is told before.")
@click.option("--max-output-tokens", type=click.IntRange(1), help="The longest answer.")
def ask(model: str, text: str | None, instructions: str | None, max_output_tokens: int | None) -> None:
    options = {"instructions": instructions, "max_output_tokens": max_output_tokens}
    wanted = {name: value for name, value in options.items() if value is not None}
    question = {"model": model, "input": read_text(text), "store": False, "stream": True, **wanted}
    writer = AnswerWriter(is_quiet=is_json_asked_for())
    with service() as client:
        for event in client.raw.stream("/v1/responses", json=question):
            writer.take(event)
    response = writer.finish()
    if is_json_asked_for():
        print_document(response)


@models.command("check", help="Check a catalog file; MODELS_CONFIG's if none is named.")
@click.argument("path", type=click.Path(path_type=Path), envvar="MODELS_CONFIG", metavar="[FILE]")
def check_models(path: Path) -> None:
    try:
        catalog = read_catalog(path)
    except CatalogInvalid as error:
        raise click.ClickException("\n".join(error.problems)) from error
    for variable in _unset_variables(catalog):
        click.echo(f"Not set here, and needed by the workers of models: {variable}", err=True)
    click.echo(f"{path}: {len(catalog)} models of {len(catalog.providers)} providers")


@models.command(
    "import-openrouter",
    help="Import OpenRouter's public list of models, JSON in FILE or - for standard input, and print a catalog.",
)
@click.argument("listing", type=click.File("rb"), metavar="FILE")
@click.option(
    "--credits-per-dollar", default="1", show_default=True, help="What a dollar of the list is in credits."
)
@click.option(
    "--uncharged",
    multiple=True,
    metavar="PRICE",
    help="A price that is not charged and leaves no model out, as web_search where callers cannot search.",
)
def import_openrouter_models(listing: IO[bytes], credits_per_dollar: str, uncharged: tuple[str, ...]) -> None:
    try:
        imported = import_openrouter(
            listing.read(), credits_per_dollar=_factor(credits_per_dollar), uncharged=uncharged
        )
    except NotAModelList as error:
        raise click.ClickException(str(error.__doc__)) from error
    for line in imported.left_out:
        click.echo(f"Left out: {line}", err=True)
    click.echo(imported.toml, nl=False)


def _factor(text: str) -> Decimal:
    try:
        factor = Decimal(text)
    except InvalidOperation:
        factor = Decimal(0)
    if not (factor.is_finite() and factor > 0):
        raise click.BadParameter("must be a positive decimal number", param_hint="--credits-per-dollar")
    return factor


def _unset_variables(catalog: Catalog) -> Iterator[str]:
    for provider in sorted(catalog.providers, key=lambda provider: provider.name):
        names = [provider.api_key_env, *(variable for _, variable in provider.header_envs)]
        yield from (
            f"{name} (provider {provider.name})" for name in names if name and not os.environ.get(name)
        )
