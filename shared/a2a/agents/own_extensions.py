"""The four extensions of this service: their URIs, the schemas of their data, and the validation.

The schemas are served at `{uri}/schema.json` and validate the data that clients send. `specifications/` has the pages
that are served at the URIs. A change that breaks clients needs a new version and a new URI.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from shared.a2a.updates import DeclaredExtension

VERSION = "v1"
_WORD = r"^[^\s\x00-\x1f\x7f]+$"
_TEXT = StringConstraints(strict=True, min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")


class ExtensionData(BaseModel):
    """The data under an extension's URI. Unknown members are accepted, so that later versions can add members."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow", frozen=True)


class EventData(ExtensionData):
    """The event that a message or an artifact reports."""

    # Limit lengths by `max_length` and not in the pattern: a bounded repetition in a pattern costs a tenth of a second
    # at each start.
    type: Annotated[str, StringConstraints(strict=True, max_length=255, pattern=_WORD)]
    source: Annotated[str, StringConstraints(strict=True, max_length=2048, pattern=_WORD)]
    id: Annotated[str, _TEXT]


class ArtifactSchemaData(ExtensionData):
    """The schema of the content of an artifact or message: a URI whose fragment names the schema."""

    schema_: Annotated[
        str,
        StringConstraints(
            strict=True,
            max_length=2048,
            pattern=r"^[A-Za-z][A-Za-z0-9+.-]*:[^\s#\x00-\x1f\x7f]+#[^\s\x00-\x1f\x7f]+$",
        ),
    ] = Field(alias="schema")


class FileArtifactData(ExtensionData):
    """The file, and the exact version of the file, to which an artifact or a part links."""

    id: UUID
    version_id: UUID
    content_sha256: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")] | None = None
    byte_size: Annotated[int, Field(strict=True, ge=0)] | None = None
    retention_expires_at: Annotated[str, StringConstraints(strict=True, max_length=40)] | None = None


class DistributionParams(BaseModel):
    """The networks from which the agent receives messages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    networks: Annotated[list[Annotated[str, _TEXT]], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnExtension:
    """One extension: its name in the URI, its purpose, and the schemas of its data and its parameters."""

    name: str
    description: str
    data: type[BaseModel] | None = None
    params: type[BaseModel] | None = None


OWN_EXTENSIONS = (
    OwnExtension(
        name="event",
        description="Messages and artifacts that tell of events carry their type, source and id.",
        data=EventData,
    ),
    OwnExtension(
        name="artifact-schema",
        description="Artifacts name the schema that their content follows.",
        data=ArtifactSchemaData,
    ),
    OwnExtension(
        name="distribution",
        description="The agent receives the messages of these networks.",
        params=DistributionParams,
    ),
    OwnExtension(
        name="file-artifact",
        description="Artifacts that are stored as files carry the file's id, exact version, digest and deadline.",
        data=FileArtifactData,
    ),
)


class OwnExtensions:
    """The extensions of this service under one base address."""

    def __init__(self, base_url: str) -> None:
        self._by_uri = {f"{base_url}/extensions/{own.name}/{VERSION}": own for own in OWN_EXTENSIONS}

    def offered(self, networks: Sequence[str]) -> Iterator[DeclaredExtension]:
        """Yield the extensions that each agent declares. `distribution` is declared only if `networks` is not empty."""
        for uri, own in self._by_uri.items():
            if own.params is None:
                yield DeclaredExtension(uri=uri, description=own.description)
            elif networks:
                params = {"networks": list(networks)}
                yield DeclaredExtension(uri=uri, description=own.description, params=params)

    def find_errors(self, uri: str, data: object) -> Iterator[tuple[str, str]]:
        """Yield the path and the text of each error in an extension's data. Extensions of others have no errors."""
        own = self._by_uri.get(uri)
        if own is None or own.data is None:
            return
        if not isinstance(data, dict):
            yield "", "must be an object" if data is not None else "is missing"
            return
        try:
            own.data.model_validate(data)
        except ValidationError as error:
            for found in error.errors(include_url=False, include_context=False, include_input=False):
                yield ".".join(map(str, found["loc"])), found["msg"]


def find_own_extension(name: str, version: str) -> OwnExtension | None:
    """Return the extension with this name and version, the last two segments of its URI, or None."""
    # Old versions are not served, but their URIs stay reserved.
    if version != VERSION:
        return None
    return next((own for own in OWN_EXTENSIONS if own.name == name), None)


def schema_of(own: OwnExtension, uri: str) -> Mapping[str, Any]:
    """Return the JSON Schemas of an extension: `data` under its URI in metadata, `params` in the agent's card."""
    shapes = {"data": own.data, "params": own.params}
    definitions = {name: shape.model_json_schema() for name, shape in shapes.items() if shape is not None}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{uri}/schema.json",
        "description": own.description,
        "$defs": definitions,
    }


def specification_of(own: OwnExtension, base_url: str) -> str:
    """Return the specification of an extension as HTML."""
    return _page(f"{own.name}-{VERSION}.html", base_url)


def list_specifications(base_url: str) -> str:
    """Return the page that lists all extensions as HTML."""
    uris = ((own, f"{base_url}/extensions/{own.name}/{VERSION}") for own in OWN_EXTENSIONS)
    items = (f'<dt><a href="{uri}">{uri}</a></dt>\n<dd>{own.description}</dd>' for own, uri in uris)
    return _page("index.html", base_url).replace("{extensions}", "\n".join(items))


def _page(name: str, base_url: str) -> str:
    folder = resources.files("shared.a2a.specifications")
    style = (folder / "head.html").read_text(encoding="utf-8").strip()
    return (
        (folder / name).read_text(encoding="utf-8").replace("{style}", style).replace("{base_url}", base_url)
    )
