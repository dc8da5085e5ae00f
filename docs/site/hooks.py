"""Hooks of the site's generator: collect the repository's pages, and write the references that come from code."""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from deploy.cli.main import main
from deploy.generated_docs.environment_example import read_groups
from shared.config.settings import Settings
from web.openapi.problems import list_problems

ROOT = Path(__file__).parents[2]
_PLACES = ("*.md", "docs/**/*.md", "deploy/*.md", "shared/**/*.md", "sdk/*.md", "tests/benchmarks/*.md")
_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^)#]+)(#[\w-]+)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the parts of the navigation that are whole folders."""
    config.nav = _complete(config.nav or [], sorted(set(repository_pages()) - set(_listed(config.nav or []))))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every page under the path that it has in the repository, so that links between pages hold."""
    for path in repository_pages():
        files.append(_at(File.generated(config, path, abs_src_path=str(ROOT / path))))
    for path, write in REFERENCES.items():
        files.append(_at(File.generated(config, path, content=write())))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Name files of the repository that are no pages instead of linking to them."""
    folder = Path(page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        target = (ROOT / folder / match[2]).resolve().relative_to(ROOT)
        return match[0] if files.get_file_from_path(str(target)) or not (ROOT / target).exists() else match[1]

    return _LINK.sub(link, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Drop what nobody loads: source maps, other languages' search, and a map of a site without an address."""
    for pattern in ("**/*.map", "**/lunr/**/*.js", "sitemap.xml*"):
        for path in Path(config.site_dir).glob(pattern):
            path.unlink()


def repository_pages() -> list[str]:
    """List the pages of the repository by their paths."""
    return sorted({str(path.relative_to(ROOT)) for place in _PLACES for path in ROOT.glob(place)})


def _at(file: File) -> File:
    """Serve `docs/` as the site's root, beside the README."""
    file.dest_uri = (
        file.dest_uri.removeprefix("docs/") if file.src_uri != "docs/README.md" else "contents/index.html"
    )
    return file


def _listed(nav: list[object]) -> Iterator[str]:
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from _listed(value) if isinstance(value, list) else [str(value)]


def _complete(nav: list[object], left: list[str]) -> list[object]:
    """Put the pages below a folder that the navigation names, as far as it names them nowhere, in its place."""
    completed: list[object] = []
    for entry in nav:
        if isinstance(entry, dict):
            completed.append({name: _inside(value, left) for name, value in entry.items()})
        elif str(entry).endswith("/"):
            completed += [path for path in left if path.startswith(str(entry))]
        else:
            completed.append(entry)
    return completed


def _inside(value: object, left: list[str]) -> object:
    return _complete(value, left) if isinstance(value, list) else value


def write_commands() -> str:
    """Write the help of every command."""
    context = click.Context(main, info_name="quartermaster")
    return "\n".join(["# Commands\n", *_describe(main, context)])


def write_settings() -> str:
    """Write every setting with its default and meaning."""
    lines = [
        "# Settings\n",
        "Each is an environment variable, or a file of that name in lower case below `/run/secrets`.",
    ]
    for heading, meanings in read_groups():
        lines += [f"\n## {heading}\n", "| Setting | Default | Meaning |", "| - | - | - |"]
        lines += [
            f"| `{name.upper()}` | {_default(name)} | {_cell(text)} |" for name, text in meanings.items()
        ]
    return "\n".join(lines)


def write_errors() -> str:
    """Write every error with its status, meaning and remedy."""
    importlib.import_module("web.app")  # an error is known once the module that raises it is loaded
    lines = ["# Errors\n", "A running service has a page for each, with examples, under `/problems`.\n"]
    lines += ["| Code | Status | Meaning | Remedy |", "| - | - | - | - |"]
    problems = sorted(list_problems().values(), key=lambda problem: problem.code)
    lines += [
        f'| <a id="{it.code}"></a>`{it.code}` | {it.status} | {_cell(it.meaning)} | {_cell(it.remedy)} |'
        for it in problems
    ]
    return "\n".join(lines)


def _describe(command: click.Command, context: click.Context) -> Iterator[str]:
    level = 1 + len(context.command_path.split())
    yield f"{'#' * min(level, 4)} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _describe(inner, click.Context(inner, info_name=name, parent=context))


def _default(name: str) -> str:
    field = Settings.model_fields[name]
    return (
        "required" if field.is_required() else f"`{field.default}`" if field.default not in (None, "") else ""
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


REFERENCES: Mapping[str, Callable[[], str]] = {
    "reference/commands.md": write_commands,
    "reference/settings.md": write_settings,
    "reference/errors.md": write_errors,
}
