"""Request and response models of behaviors."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from shared.a2a.behaviors.administration import BehaviorDraft
from shared.a2a.behaviors.script_parser import MAX_SCRIPT_BYTES
from shared.a2a.updates import BehaviorKind, DeclaredExtension
from web.http.schemas import PageResponse, ResponseModel
from web.http.wire_types import CamelModel, Id, Name, RequestModel, UtcTime

Texts = Annotated[Sequence[str], Field(max_length=50)]


class SentExtension(RequestModel):
    """An extension that the agent's card declares."""

    uri: Annotated[str, Field(min_length=1, max_length=2048, pattern=r"^[!-+\--~]+$")]
    description: Annotated[str, Field(max_length=2000)] | None = None
    required: bool = False
    params: dict[str, Any] | None = None
    requires: Annotated[
        Texts,
        Field(
            description="Extensions that must be activated together with this one. The card declares them too."
        ),
    ] = ()

    def declared(self) -> DeclaredExtension:
        """Return the domain's object."""
        return DeclaredExtension(
            uri=self.uri,
            description=self.description,
            required=self.required,
            params=self.params,
            requires=tuple(self.requires),
        )


class ChangedBehavior(RequestModel):
    """The new state of a behavior."""

    name: Name
    kind: Literal["model", "script"]
    description: Annotated[str, Field(min_length=1, max_length=2000)]
    model: Annotated[str, Field(min_length=1, max_length=200, description="For kind `model`.")] | None = None
    instructions: Annotated[str, Field(max_length=100_000)] = ""
    script: (
        Annotated[
            str,
            Field(
                max_length=MAX_SCRIPT_BYTES, description="For kind `script`: YAML. Null uses `A2A_SCRIPT`."
            ),
        ]
        | None
    ) = None
    tags: Texts = ()
    examples: Texts = ()
    input_modes: Annotated[Texts, Field(description="Media types it reads. Empty: text and JSON.")] = ()
    output_modes: Annotated[Texts, Field(description="Media types it writes. Empty: text and JSON.")] = ()
    extensions: Annotated[Sequence[SentExtension], Field(max_length=50)] = ()

    def draft(self) -> BehaviorDraft:
        """Return the domain's object."""
        return BehaviorDraft(
            name=self.name,
            kind=BehaviorKind(self.kind),
            description=self.description,
            model=self.model,
            instructions=self.instructions,
            script=self.script,
            tags=self.tags,
            examples=self.examples,
            input_modes=self.input_modes,
            output_modes=self.output_modes,
            extensions=[extension.declared() for extension in self.extensions],
        )


class NewBehavior(ChangedBehavior):
    """A new behavior of a deployment. The first one is always the default."""

    is_default: bool = False


class ShownExtension(CamelModel):
    """An extension that the agent's card declares."""

    uri: str
    description: str | None
    required: bool
    params: dict[str, Any] | None
    requires: Sequence[str]


class BehaviorBody(ResponseModel):
    """A behavior: one of the named ways in which a deployment's agent responds."""

    id: Id
    deployment_id: Id
    name: str
    kind: BehaviorKind
    description: str
    model: str | None
    instructions: str
    script: str | None
    tags: Sequence[str]
    examples: Sequence[str]
    input_modes: Sequence[str]
    output_modes: Sequence[str]
    extensions: Sequence[ShownExtension]
    is_default: bool
    updated_at: UtcTime


class BehaviorPage(PageResponse):
    """The behaviors of a deployment, oldest first."""

    behaviors: Sequence[BehaviorBody]
