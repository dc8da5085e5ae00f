"""The output of commands: tables at terminals, JSON for programs, and completion for shells."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from deploy.cli.command_context import print_json
from deploy.cli.display import output, table_output
from deploy.cli.exit_codes import MEANINGS
from deploy.cli.main import LazyGroup, main

PAGE: dict[str, Any] = {
    "keys": [
        {"name": "first", "cost": "2.5", "revokedAt": None, "isBound": True},
        {"name": "second", "cost": "10", "revokedAt": None, "isBound": False},
    ],
    "nextCursor": "0199",
}


def shown(document: dict[str, Any], width: int = 100) -> str:
    written = io.StringIO()
    table_output.render(document, Console(file=written, width=width, color_system=None))
    return written.getvalue()


def test_page_is_a_table_with_cost_bars_and_no_empty_columns() -> None:
    head, _, first, second, *rest = (line.rstrip() for line in shown(PAGE).splitlines() if line.strip())
    assert head.split() == ["name", "cost", "isBound"]
    assert first.split() == ["first", "2.5", "yes", "█" * 5]
    assert second.split() == ["second", "10", "no", "█" * 20]
    assert rest == ["More: --cursor 0199"]


def test_what_is_wider_than_the_terminal_is_shown_field_by_field() -> None:
    lines = shown(PAGE, width=20).splitlines()
    assert [line.split() for line in lines[:3]] == [["name", "first"], ["cost", "2.5"], ["isBound", "yes"]]


def test_a_resource_is_its_fields_and_an_empty_list_says_so() -> None:
    told = shown({"id": "1", "owner": {"kind": "user"}, "endedAt": None, "lines": [], "nextCursor": None})
    assert [line.split() for line in told.splitlines() if line.strip()] == [
        ["id", "1"],
        ["owner.kind", "user"],
        ["endedAt", "-"],
        ["No", "lines."],
    ]


def test_time_series_has_a_sparkline_and_credits_have_a_hold_bar() -> None:
    days = ["2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", "2026-11-03T00:00:00Z"]
    groups = [{"startsAt": day, "cost": cost} for day, cost in zip(days, ("1", "0", "4"), strict=True)]
    assert shown({"groups": groups}).splitlines()[-1].rstrip() == "cost  ▂ █"
    told = shown({"balance": "10", "held": "2.5", "available": "7.5"}).splitlines()
    assert told[-1].rstrip() == "█" * 15 + "░" * 5 + "  available, held"


def test_text_of_others_cannot_control_the_terminal() -> None:
    told = shown({"name": "\x1b[31mred\x07 [bold]plain[/bold] \u202egpj.exe"})
    assert "\x1b" not in told
    assert "\x07" not in told
    assert "\u202e" not in told
    assert "[bold]plain[/bold]" in told


@pytest.mark.parametrize(
    ("arguments", "is_terminal", "is_json"),
    [
        (["show"], False, True),
        (["show"], True, False),
        (["show", "--json"], True, True),
        (["--json", "show"], True, True),
        (["show", "--", "--json"], True, False),
    ],
)
def test_one_place_decides_between_tables_and_json(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], is_terminal: bool, is_json: bool
) -> None:
    @click.command()
    @click.argument("words", nargs=-1)
    def show(words: tuple[str, ...]) -> None:
        print_json({"balance": "1.5"})

    group = LazyGroup("quartermaster", commands={"show": show})
    monkeypatch.setattr(output, "is_terminal", lambda: is_terminal)
    result = CliRunner().invoke(group, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    if is_json:
        assert result.output == json.dumps({"balance": "1.5"}, indent=2) + "\n"
    else:
        assert result.output.split() == ["balance", "1.5"]


@pytest.mark.parametrize(
    ("shell", "words"),
    [("bash", "complete -o nosort"), ("zsh", "compdef"), ("fish", "complete --no-files")],
)
def test_each_shell_gets_its_completion(shell: str, words: str) -> None:
    written = run("completion", shell)
    assert words in written
    assert "_QUARTERMASTER_COMPLETE" in written


def test_completion_knows_commands_and_options() -> None:
    asked = {"_QUARTERMASTER_COMPLETE": "bash_complete"}
    assert "plain,credits" in run(**asked, COMP_WORDS="quartermaster cred", COMP_CWORD="1").split()
    words = "quartermaster credits show --org"
    assert "plain,--organization" in run(**asked, COMP_WORDS=words, COMP_CWORD="3").split()


def run(*arguments: str, **environment: str) -> str:
    command = Path(sys.executable).parent / "quartermaster"
    done = subprocess.run(
        [command, *arguments], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_exit_codes_are_told_by_the_help_and_by_the_guide() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "command-line.md").read_text()
    help_text = CliRunner().invoke(main, ["--help"]).output
    for code, meaning in MEANINGS.items():
        assert f"| {code:d} | {meaning} |" in guide
        assert f"{code:d}  {meaning.replace('`', '')}" in help_text


@click.command(cls=LazyGroup)
def sample() -> None:
    """A group with the options of `main`."""


@sample.command()
@click.argument("words", nargs=-1)
def ls(words: tuple[str, ...]) -> None:
    print_json({**PAGE, "words": list(words)})


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["ls", "--field", "nextCursor"], "0199\n"),
        (["--field=keys.1.name", "ls"], "second\n"),
        (["ls", "--json", "--field", "keys.0.revokedAt"], "null\n"),
        (["ls", "--field", "words", "--", "--field", "--json"], '[\n  "--field",\n  "--json"\n]\n'),
    ],
)
def test_field_option_prints_one_field_of_the_result(arguments: list[str], printed: str) -> None:
    result = CliRunner().invoke(sample, arguments)
    assert (result.exit_code, result.output) == (0, printed)


def test_field_option_prints_the_whole_result_if_the_field_is_missing() -> None:
    result = CliRunner().invoke(sample, ["ls", "--field", "keys.2.name"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert '"nextCursor": "0199"' in result.stderr
    assert (
        "succeeded, but its result, printed above, has no field `keys.2.name`: do not repeat it."
        in result.stderr
    )


def test_field_option_without_a_path_is_refused() -> None:
    result = CliRunner().invoke(sample, ["ls", "--field"])
    assert result.exit_code == 2
    assert "requires the path of a field" in result.stderr
