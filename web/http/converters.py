"""Types of path parameters. A path with a value in another format does not exist, and gives 404."""

from datetime import date
from uuid import UUID

from flask import Flask
from werkzeug.exceptions import NotFound
from werkzeug.routing import BaseConverter

from shared.files.references import ReferenceKind
from shared.media.networks.base import Network
from shared.media.networks.registry import NETWORKS
from web.http.wire_types import parse_text


class IdConverter(BaseConverter):
    """A UUID in its hyphenated form."""

    regex = "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
    part_isolating = True

    def to_python(self, value: str) -> UUID:
        """Return the id."""
        return UUID(value)


class ReferenceKindConverter(BaseConverter):
    """A kind of reference."""

    regex = "|".join(ReferenceKind)
    part_isolating = True

    def to_python(self, value: str) -> ReferenceKind:
        """Return the kind."""
        return ReferenceKind(value)


class ReferenceIdConverter(BaseConverter):
    """The id of a referring resource: 1 to 200 characters, including slashes, without control characters."""

    regex = ".{1,200}"
    part_isolating = False

    def to_python(self, value: str) -> str:
        """Return the id."""
        try:
            return parse_text(value)
        except ValueError:
            # Do not raise ValidationError: for the router, it means that the path exists with another method.
            raise NotFound from None


class NetworkConverter(BaseConverter):
    """A messaging network that has an adapter."""

    regex = "|".join(NETWORKS)
    part_isolating = True

    def to_python(self, value: str) -> Network:
        """Return the network."""
        return NETWORKS[value]


class MonthConverter(BaseConverter):
    """A calendar month, as `2026-11`."""

    # The pattern checks the month, so `fromisoformat` cannot fail.
    regex = "2[0-9]{3}-(?:0[1-9]|1[0-2])"
    part_isolating = True

    def to_python(self, value: str) -> date:
        """Return the first day of the month."""
        return date.fromisoformat(f"{value}-01")


class TaskConverter(BaseConverter):
    """A task's id. An id contains no colon, so `/tasks/{id}:cancel` cannot name a task."""

    regex = "[^/:]+"
    part_isolating = True


def register_converters(app: Flask) -> None:
    """Add `<id:…>`, `<task:…>`, `<month:…>`, `<network:…>`, `<reference_kind:…>` and `<reference_id:…>`."""
    app.url_map.converters["id"] = IdConverter
    app.url_map.converters["task"] = TaskConverter
    app.url_map.converters["month"] = MonthConverter
    app.url_map.converters["network"] = NetworkConverter
    app.url_map.converters["reference_kind"] = ReferenceKindConverter
    app.url_map.converters["reference_id"] = ReferenceIdConverter
