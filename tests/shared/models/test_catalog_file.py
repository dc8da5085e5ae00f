"""The catalog in force: changed without a restart, never replaced by an invalid or incomplete file."""

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.models import catalog_file
from shared.models.catalog import ProviderKind
from shared.models.catalog_file import CatalogFile
from shared.models.catalog_format import CatalogInvalid
from tests.support.processes.stack import wait_until

HEAD = '[providers.p]\nbase_url = "https://example.com/v1"\n'
MODEL = """
[[models]]
id = "{}"
prompt_price = "1"
completion_price = "2"
upstreams = [{{ provider = "p", model = "m" }}]
"""


def catalog_of(*names: str) -> str:
    return HEAD + "".join(MODEL.format(name) for name in names)


def names_of(file: CatalogFile) -> list[str]:
    """Return the names after two checks: a changed file is read once it was unchanged between two."""
    file.current()
    return [model.id for model in file.current().entries]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "models.toml"
    made.write_text(catalog_of("one"))
    return made


@pytest.fixture
def file(path: Path) -> CatalogFile:
    return CatalogFile(path, check_interval_seconds=0)


def test_without_a_file_there_are_the_scripted_models_and_they_say_so() -> None:
    catalog = CatalogFile(None).current()
    assert {model.provider for model in catalog.entries} == {"scripted"}
    assert all("Not a language model" in model.description for model in catalog.entries)
    assert {provider.kind for provider in catalog.providers} == {ProviderKind.SCRIPTED}


SECRETIVE = (
    HEAD
    + """
api_key_env = "KEY"
header_envs = { "x-project" = "PROJECT" }
proxy = "http://proxy.example.com:3128"
"""
    + MODEL.format("one")
)


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"base_url": "https://evil.example/v1"},
        {"proxy": "http://evil.example:3128"},
        {"proxy": None},
        {"ca_file": "/tmp/evil.pem"},
        {"api_key_env": "ANOTHER_KEY"},
        {"header_envs": (("x-project", "ANOTHER_KEY"),)},
        {"headers": (("host", "evil.example"),)},
    ],
    ids=lambda elsewhere: next(iter(elsewhere)),
)
def test_secret_is_sent_only_along_a_route_of_a_loaded_catalog(
    path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: dict[str, Any]
) -> None:
    monkeypatch.setenv("KEY", "a secret")
    monkeypatch.setenv("PROJECT", "another")
    path.write_text(SECRETIVE)
    file = CatalogFile(path)
    (provider,) = file.current().providers
    assert file.trusts(provider)
    assert file.trusts(replace(provider, idle_timeout_seconds=7.0))
    assert not file.trusts(replace(provider, **elsewhere))
    assert file.trusts(replace(provider, api_key_env=None, header_envs=(), **_without_secrets(elsewhere)))


def _without_secrets(elsewhere: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in elsewhere.items() if not name.endswith(("_env", "_envs"))}


def test_a_broken_file_stops_the_start(path: Path) -> None:
    path.write_text("models = 3")
    with pytest.raises(CatalogInvalid):
        CatalogFile(path)


def test_a_changed_file_is_read_without_a_restart(path: Path, file: CatalogFile) -> None:
    assert names_of(file) == ["one"]
    path.write_text(catalog_of("one", "two"))
    assert names_of(file) == ["one", "two"]


def test_a_file_that_was_put_in_place_is_read(path: Path, file: CatalogFile) -> None:
    new = path.with_suffix(".new")
    new.write_text(catalog_of("six"))
    os.utime(new, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))  # as old, as large
    new.replace(path)
    assert names_of(file) == ["six"]


def test_a_catalog_that_was_given_out_never_changes(path: Path, file: CatalogFile) -> None:
    before = file.current()
    path.write_text(catalog_of("two"))
    assert names_of(file) == ["two"]
    assert before.find("one") is not None
    assert before.find("two") is None


def test_a_broken_change_keeps_the_catalog_and_is_logged(
    path: Path, file: CatalogFile, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(catalog_of("two") + "surplus = 1")
    assert names_of(file) == ["one"]
    [record] = caplog.records
    assert record.getMessage() == "catalog.invalid"
    assert "models[0] (two).surplus: is not a known key" in record.__dict__["fields"]["problems"][0]
    path.write_text(catalog_of("three"))
    assert names_of(file) == ["three"]


def test_a_file_that_is_gone_keeps_the_catalog(path: Path, file: CatalogFile) -> None:
    path.unlink()
    assert names_of(file) == ["one"]
    path.write_text(catalog_of("back"))
    assert names_of(file) == ["back"]


def test_a_file_that_is_being_written_is_left_alone(path: Path, file: CatalogFile) -> None:
    whole = catalog_of(*(f"model-{number}" for number in range(20)))
    with path.open("w") as writing:
        for line in whole.splitlines(keepends=True):
            writing.write(line)
            writing.flush()
            assert [model.id for model in file.current().entries] == ["one"]
    assert len(names_of(file)) == 20


def test_the_file_is_looked_at_only_now_and_then(path: Path) -> None:
    file = CatalogFile(path, check_interval_seconds=3600)
    path.write_text(catalog_of("two"))
    assert names_of(file) == ["one"]


def test_a_process_that_was_idle_begins_with_the_new_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_file, "SETTLED_SECONDS", -3600.0)  # as if the change were an hour old
    file = CatalogFile(path, check_interval_seconds=0)
    path.write_text(catalog_of("two"))
    assert [model.id for model in file.current().entries] == ["two"]


def test_watched_file_is_read_without_a_request(path: Path) -> None:
    file = CatalogFile(path, check_interval_seconds=0.02).watch()
    path.write_text(catalog_of("two"))
    try:
        wait_until(lambda: file._catalog.find("two") is not None, "the change is noticed")
    finally:
        file.close()


def test_readers_see_one_whole_catalog_or_the_other(path: Path, file: CatalogFile) -> None:
    seen: set[tuple[str, ...]] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(tuple(model.id for model in file.current().entries))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(20):
        new = path.with_suffix(".new")
        new.write_text(catalog_of(*["a", "b", "c"][: 1 + number % 3]))
        new.replace(path)
        done.wait(0.01)
    done.set()
    for thread in threads:
        thread.join()
    assert seen <= {("one",), ("a",), ("a", "b"), ("a", "b", "c")}
