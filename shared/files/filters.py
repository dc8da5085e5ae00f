"""The filters of the list of files: the one declaration from which each interface makes its own.

`GET /files` makes its query parameters of it (`web/files/schemas.py`), the console its form, the command line its
options. The SDK declares its own parameters, and a test compares them. To add a filter, add a field to `FileFilter`:
with its `condition`, unless `listing.py` applies it otherwise, and with a `form` if the console offers it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, get_args, get_type_hints
from uuid import UUID

from sqlalchemy import ColumnElement

from shared.files.resources import Availability, Purpose
from shared.files.tables import files
from shared.ids import least_id

_TYPE_NAME = "[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
_DECLARATION = "filter"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """A filter's field in the console's form; with `choices` a selection, else a text or a day."""

    name: str
    label: str
    hint: str = ""
    choices: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterDeclaration:
    """How interfaces offer a filter, and the condition by which it narrows the list.

    `name` is the field of `FileFilter`, `option` the command line's (without dashes), `kind` the type of its value.
    """

    name: str = ""
    kind: type = str
    description: str
    option: str
    pattern: str | None = None
    examples: Sequence[str] = ()
    form: FormField | None = None
    condition: Callable[[Any], ColumnElement[bool]] | None = None
    """Makes a condition of the value; None where `listing.py` chooses indexes by the filter instead."""

    @property
    def choices(self) -> Sequence[str]:
        """The values of a filter that has few; empty for others."""
        return [str(value) for value in self.kind] if issubclass(self.kind, StrEnum) else []


def _declare(description: str, *, option: str, **more: Any) -> Mapping[str, Any]:
    """Return the metadata of a field that declares a filter."""
    return {_DECLARATION: {"description": description, "option": option, **more}}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFilter:
    """The files of the scope that a list shows; None does not narrow it."""

    name: str | None = field(
        default=None,
        metadata=_declare(
            "Beginnings of words in the file's name, in any order and any case.",
            option="name",
            form=FormField(name="name", label="Name", hint="beginnings of words"),
        ),
    )
    media_type: str | None = field(
        default=None,
        metadata=_declare(
            "A media type as `image/png`, or all of a family as `image/*`.",
            option="media-type",
            pattern=rf"^{_TYPE_NAME}/({_TYPE_NAME}|\*)$",
            examples=("image/png", "image/*"),
            form=FormField(
                name="type", label="Type", choices=("image", "audio", "video", "text", "application")
            ),
        ),
    )
    purpose: Purpose | None = field(
        default=None,
        metadata=_declare(
            "Files of this purpose.", option="purpose", form=FormField(name="purpose", label="Purpose")
        ),
    )
    availability: Availability | None = field(
        default=None,
        metadata=_declare(
            "Files with this availability.",
            option="availability",
            # Not Pending: it lasts for seconds, and staged content of a local store is Available.
            form=FormField(name="availability", label="State", choices=("Available", "Expired", "Deleted")),
        ),
    )
    owner_id: UUID | None = field(default=None, metadata=_declare("Files of this identity.", option="owner"))
    # A file is created when its first upload begins: its id begins with that time, and lists are in the ids' order.
    created_from: datetime | None = field(
        default=None,
        metadata=_declare(
            "Files first uploaded at this time or later.",
            option="created-from",
            form=FormField(name="since", label="Since"),
            condition=lambda moment: files.c.id >= least_id(moment),
        ),
    )
    created_to: datetime | None = field(
        default=None,
        metadata=_declare(
            "Files first uploaded before this time.",
            option="created-to",
            condition=lambda moment: files.c.id < least_id(moment),
        ),
    )


def _read_declarations() -> Sequence[FilterDeclaration]:
    kinds = get_type_hints(FileFilter)
    return tuple(
        FilterDeclaration(name=each.name, kind=get_args(kinds[each.name])[0], **each.metadata[_DECLARATION])
        for each in fields(FileFilter)
    )


FILTERS = _read_declarations()
