"""The command group `models`: list and call models over REST, check a catalog file, and import OpenRouter's list."""

import os
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import IO, Any

import click

from deploy.cli.client.rest_client import service
from deploy.cli.display.output import is_interactive, is_json_requested, print_document
from deploy.cli.display.streamed_replies import ReplyWriter, read_text
from shared.models.catalog import Catalog
from shared.models.catalog_format import CatalogInvalid, read_catalog
from shared.models.openrouter_import import NotAModelList, import_openrouter

models = click.Group("models", help="List and call models, and manage catalog files.")


@models.command("ls", help="List the models that you may call, with prices in credits per million tokens.")
def list_models() -> None:
    with service() as client:
        listed: dict[str, Any] = client.raw.request("GET", "/v1/models")
    if not is_interactive():
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
    help="Send TEXT, or standard input, to MODEL and print the reply as it is streamed; tokens and cost go to the"
    " error output. --json prints the whole response at its end.",
)
@click.argument("model")
@click.argument("text", required=False)
@click.option("--instructions", help="System instructions for the model.")
@click.option("--max-output-tokens", type=click.IntRange(1), help="Maximum length of the reply in tokens.")
def ask(model: str, text: str | None, instructions: str | None, max_output_tokens: int | None) -> None:
    options = {"instructions": instructions, "max_output_tokens": max_output_tokens}
    wanted = {name: value for name, value in options.items() if value is not None}
    request = {"model": model, "input": read_text(text), "store": False, "stream": True, **wanted}
    writer = ReplyWriter(is_quiet=is_json_requested())
    with service() as client:
        for event in client.raw.stream("/v1/responses", json=request):
            writer.handle(event)
    response = writer.finish()
    if is_json_requested():
        print_document(response)


@models.command("check", help="Check a catalog file, by default the one that MODELS_CONFIG names.")
@click.argument("path", type=click.Path(path_type=Path), envvar="MODELS_CONFIG", metavar="[FILE]")
def check_models(path: Path) -> None:
    try:
        catalog = read_catalog(path)
    except CatalogInvalid as error:
        raise click.ClickException("\n".join(error.problems)) from error
    # Print a note and do not fail: the host that checks the catalog may not have the workers' API keys.
    for variable in _unset_variables(catalog):
        click.echo(f"Not set here, but required by `worker models` and `worker agents`: {variable}", err=True)
    click.echo(f"{path}: {len(catalog)} models of {len(catalog.providers)} providers")


@models.command(
    "import-openrouter",
    help="Import OpenRouter's public list of models (JSON in FILE, `-`: standard input) and print it as a catalog.",
)
@click.argument("listing", type=click.File("rb"), metavar="FILE")
@click.option(
    "--credits-per-dollar",
    default="1",
    show_default=True,
    help="Credits charged per US dollar of the list's prices.",
)
@click.option(
    "--uncharged",
    multiple=True,
    metavar="PRICE",
    help="Name of a price that is not charged, for example web_search; models with other unknown prices are left out."
    " Repeatable.",
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
    # Decimal also accepts NaN and Infinity, so check below whether the number is finite.
    except InvalidOperation:
        factor = Decimal(0)
    if not (factor.is_finite() and factor > 0):
        raise click.BadParameter(
            f"{text} is not a positive decimal number", param_hint="--credits-per-dollar"
        )
    return factor


def _unset_variables(catalog: Catalog) -> Iterator[str]:
    for provider in sorted(catalog.providers, key=lambda provider: provider.name):
        names = [provider.api_key_env, *(variable for _, variable in provider.header_envs)]
        yield from (
            f"{name} (provider {provider.name})" for name in names if name and not os.environ.get(name)
        )
