"""Request and response models of messages that a distribution pushes."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from shared.a2a.inbound.intake import IntakeResult
from shared.a2a.inbound.messages import MessageState
from web.http.wire_types import CamelModel, Id, RequestModel
from web.identity.distribution_schemas import Reported, ReportedCallerBody
from web.media.schemas import MAXIMUM_ITEMS, AttachedMedia, ExternalId, ImportBody

MAXIMUM_TEXT_CHARACTERS = 200_000


class NewMessage(RequestModel):
    """A message for the agent of the distribution's deployment."""

    message_id: ExternalId = Field(description="The network's id of the message.")
    conversation_id: ExternalId | None = Field(
        default=None,
        description="The network's id of the conversation. Messages of one conversation share an A2A context.",
    )
    text: Annotated[str, Field(min_length=1, max_length=MAXIMUM_TEXT_CHARACTERS)] | None = Field(
        default=None, description="What was said."
    )
    attachments: Annotated[Sequence[AttachedMedia], Field(max_length=MAXIMUM_ITEMS)] = Field(
        default=(),
        description="Imported as media of the receiving identity before the agent gets the message.",
    )
    channel: Reported | None = Field(default=None, description="The network it came from, as reported.")
    reported_caller: ReportedCallerBody | None = None

    @model_validator(mode="after")
    def _require_content(self) -> Self:
        if self.text is None and not self.attachments:
            raise PydanticCustomError("empty", "must have a text or an attachment")
        if len({item.attachment_id for item in self.attachments}) < len(self.attachments):
            raise PydanticCustomError("repeated", "must not name an attachment twice")
        return self


class RoutedMessageBody(CamelModel):
    """An accepted message, and its task."""

    message_id: str
    conversation_id: str | None
    context_id: str = Field(description="The A2A context of the conversation.")
    task_id: Id = Field(
        description="The task with the agent's response. It exists once the state is `Routed`."
    )
    state: MessageState
    code: str | None = Field(description="The reason of a refusal that came after this push was accepted.")
    imports: Sequence[ImportBody] = Field(description="The imports of its attachments, in order.")
    replayed: bool = Field(description="Whether an earlier push delivered the same message.")

    @classmethod
    def of(cls, received: IntakeResult) -> Self:
        """Return the model of an accepted message."""
        message = received.message
        return cls(
            message_id=message.message_id,
            conversation_id=message.conversation_id,
            context_id=message.context_id,
            task_id=message.task_id,
            state=message.state,
            code=message.code,
            imports=[ImportBody.of(imported) for imported in received.imports],
            replayed=not received.is_new,
        )
