"""The sync half is generated from the async half, and both have the same methods."""

from __future__ import annotations

import inspect
from pathlib import Path

import tomllib

import quartermaster
from quartermaster._async.files import AsyncFiles
from quartermaster._async.raw import AsyncRaw
from quartermaster._sync.files import Files
from quartermaster._sync.raw import Raw
from sdk.generate import GENERATED, generate

ROOT = Path(__file__).parents[2]


def test_the_committed_sync_form_is_generated_from_the_async_one(tmp_path: Path) -> None:
    generate(tmp_path)
    committed = {path.name: path.read_text() for path in GENERATED.glob("*.py")}
    assert committed == {path.name: path.read_text() for path in tmp_path.glob("*.py")}


def test_both_forms_have_the_same_methods_and_parameters() -> None:
    pairs = ((quartermaster.AsyncClient, quartermaster.Client), (AsyncFiles, Files), (AsyncRaw, Raw))
    for one, other in pairs:
        assert signatures(one) == signatures(other)


def test_no_name_of_tasks_is_left_in_the_sync_form() -> None:
    modules = list(GENERATED.glob("*.py"))
    assert modules
    for path in modules:
        words = path.read_text().split('"""', 2)[2]
        assert not {"async", "await", "asyncio", "SyncClient"} & set(words.replace("(", " ").split()), path


def test_the_sdk_has_the_version_of_the_service() -> None:
    versions = {
        tomllib.loads(path.read_text())["project"]["version"]
        for path in (ROOT / "pyproject.toml", ROOT / "sdk" / "pyproject.toml")
    }
    assert len(versions) == 1


def signatures(kind: type) -> dict[str, list[str]]:
    return {
        {"aclose": "close"}.get(name, name): list(inspect.signature(method).parameters)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }
