"""The filters of the list of files. The API, the console and the command line derive their filters from this module.

`GET /files` derives its query parameters from `FileFilter` (`web/files/schemas.py`), the console its form, and the
command line its options. The SDK declares its own parameters, and a test compares the two. To add a filter, add a field
to `FileFilter`. Set `condition`, unless `listing.py` applies the filter itself. Set `form` if the console offers the
filter.
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
    """A filter's field in the console's form. With `choices` the field is a selection, otherwise a text or a date."""

    name: str
    label: str
    hint: str = ""
    choices: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterDeclaration:
    """The names of a filter in each interface, and the SQL condition that the filter adds to the list.

    `name` is the field of `FileFilter`, `option` is the command line's option without dashes, and `kind` is the type of
    the filter's value.
    """

    name: str = ""
    kind: type = str
    description: str
    option: str
    pattern: str | None = None
    examples: Sequence[str] = ()
    form: FormField | None = None
    condition: Callable[[Any], ColumnElement[bool]] | None = None
    """Returns the SQL condition for a value. None if `listing.py` applies the filter itself, to choose an index."""

    @property
    def choices(self) -> Sequence[str]:
        """The values of a filter that permits only certain values; empty for a filter that permits any value."""
        return [str(value) for value in self.kind] if issubclass(self.kind, StrEnum) else []


def _declare(description: str, *, option: str, **more: Any) -> Mapping[str, Any]:
    """Return the metadata of a field that declares a filter."""
    return {_DECLARATION: {"description": description, "option": option, **more}}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFilter:
    """The filters of a list of files. A filter that is None does not narrow the list."""

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
            # Do not offer Pending: a file is Pending only for seconds, and never in a local store.
            form=FormField(name="availability", label="State", choices=("Available", "Expired", "Deleted")),
        ),
    )
    owner_id: UUID | None = field(default=None, metadata=_declare("Files of this identity.", option="owner"))
    # A file's creation time is the time when its first upload began. The file's id begins with the same time, so a list
    # in the order of the ids is also in the order of creation.
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
