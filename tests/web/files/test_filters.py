"""Each filter of the list of files is declared once, in `shared/files/filters.py`, and every interface offers it."""

import inspect
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import click
import pytest
from pydantic.alias_generators import to_camel
from quartermaster._async.files import AsyncFiles

from deploy.cli.commands.files import ls
from shared.files.filters import FILTERS
from tests.web.files.asking import Asker, succeed
from tests.web.files.conftest import Cast
from web.console.pages.files import FORM, FilesQuery
from web.files.schemas import ListQuery

NAMES = [each.name for each in FILTERS]
NOW = datetime.now(UTC)


def write(moment: datetime) -> str:
    return f"{moment.replace(tzinfo=None).isoformat()}Z"


def examples(owner_id: UUID) -> Mapping[str, tuple[object, object]]:
    """For each filter, a value that the stored file matches and one that it does not."""
    return {
        "name": ("report", "invoice"),
        "media_type": ("text/*", "image/*"),
        "purpose": ("AgentArtifact", "MessagingMedia"),
        "availability": ("Available", "Deleted"),
        "owner_id": (owner_id, uuid4()),
        "created_from": (write(NOW - timedelta(hours=1)), write(NOW + timedelta(days=1))),
        "created_to": (write(NOW + timedelta(days=1)), write(NOW - timedelta(hours=1))),
    }


@pytest.fixture(scope="module")
def asker(cast: Cast) -> Asker:
    asker = cast.newcomer()[1]
    succeed(asker.upload(), 201)
    return asker


@pytest.mark.parametrize("name", NAMES)
def test_each_filter_narrows_the_list(asker: Asker, name: str) -> None:
    assert asker.owner_id is not None
    matching, other = examples(asker.owner_id)[name]
    assert len(succeed(asker.list(**{to_camel(name): matching}))["files"]) == 1
    assert succeed(asker.list(**{to_camel(name): other}))["files"] == []


def test_each_filter_is_offered_by_route_command_and_sdk() -> None:
    assert list(ListQuery.model_fields) == ["cursor", "limit", *NAMES]
    assert [name for name in inspect.signature(AsyncFiles.list).parameters if name != "self"] == NAMES
    options = [name for each in ls.params if isinstance(each, click.Option) and (name := each.name)]
    assert [name for name in options if name not in ("cursor", "limit")] == NAMES


def test_each_filter_with_a_form_is_a_field_of_the_console() -> None:
    named = [each.form.name for each in FILTERS if each.form is not None]
    assert [form.name for form, _, _ in FORM] == named
    assert list(FilesQuery.model_fields) == ["cursor", *named]
