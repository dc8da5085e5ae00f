"""The behavior that calls a model: its reply becomes the task's artifact, streamed as it arrives.

A small reply is inline text and is streamed in chunks. A reply above `A2A_INLINE_ARTIFACT_BYTES` is stored as a file
(`stored_files.py`), and a part with its link replaces what was streamed. If the client accepts JSON and no text, the
reply is a data part, or an error if it is not JSON.

The turn's organization pays. The call is attributed to the answering service account, the receiving identity and the
deployment (docs/specification/a2a.md#behaviors). Any failure ends the task as FAILED with a message of this service.
"""

import time
from collections.abc import Iterator, Sequence
from enum import Enum
from uuid import uuid5

from shared.a2a import exact_json
from shared.a2a.behaviors.linked_files import LinkedFiles
from shared.a2a.behaviors.model_calls import ModelCalls, ReplyRefused, find_entry
from shared.a2a.behaviors.prompts import write_body
from shared.a2a.behaviors.stored_files import NewFile, StoredFile, StoredFiles
from shared.a2a.types import Artifact, Message, MessageRole, Part, TaskState
from shared.a2a.updates import ArtifactProduced, StatusChanged, Turn, Update
from shared.errors import DomainError, Kind
from shared.models.errors import ModelNotFound
from shared.models.providers.errors import CallCancelled


class ReplyForm(Enum):
    """A form in which a model can reply: its media type and the suffix of a file with it."""

    TEXT = ("text/plain", ".txt")
    MARKDOWN = ("text/markdown", ".md")
    JSON = ("application/json", ".json")

    @property
    def media_type(self) -> str:
        """The media type of the reply's part or file."""
        return self.value[0]

    @property
    def suffix(self) -> str:
        """The suffix of a file name in this form."""
        return self.value[1]


def choose_form(accepted: Sequence[str]) -> ReplyForm:
    """Return the first form that the client accepts; text if it names none, or none that exists here."""
    for mode in accepted:
        for form in ReplyForm:
            if _takes(mode, form.media_type):
                return form
    return ReplyForm.TEXT


def _takes(mode: str, media_type: str) -> bool:
    """Return whether a media type or range, such as `text/*`, covers a media type; parameters are ignored."""
    kind, _, subtype = mode.partition(";")[0].strip().lower().partition("/")
    wanted, _, written = media_type.partition("/")
    return kind in ("*", wanted) and subtype in ("*", written)


COALESCING_SECONDS = 0.1
"""Text that arrives faster is collected, because each chunk is a transaction, and an event in every stream."""
ARTIFACT_NAME = "reply"


class ReplyNotJson(DomainError):
    """The client takes JSON alone, and the model's reply was something else."""

    code = "reply_not_json"
    kind = Kind.UPSTREAM_FAILED


class ModelBackedBehavior:
    """Answers each message with a reply of the behavior's model."""

    def __init__(
        self, calls: ModelCalls, files: StoredFiles, linked: LinkedFiles, *, inline_limit_bytes: int
    ) -> None:
        self._calls = calls
        self._files = files
        self._linked = linked
        self._inline_limit_bytes = inline_limit_bytes

    def run(self, turn: Turn) -> Iterator[Update]:
        """Call the model and yield its reply. Ends without an update if the turn is canceled."""
        yield StatusChanged(state=TaskState.WORKING)
        try:
            yield from self._stream_reply(turn)
        except CallCancelled:
            return
        except ReplyRefused as refusal:
            yield StatusChanged(state=TaskState.REJECTED, message=_agent_message(turn, refusal.detail))

    def _stream_reply(self, turn: Turn) -> Iterator[Update]:
        form = choose_form(turn.accepted_output_modes)
        if turn.behavior.model is None:
            raise ModelNotFound
        entry = find_entry(self._calls.catalog.current(), turn.behavior.model)
        body = write_body(turn, entry, self._linked.read, wants_json=form is ReplyForm.JSON)
        reply = _Reply(turn, form, self._files, self._inline_limit_bytes)
        for text in self._calls.stream(turn, body):
            yield from reply.add(text)
        yield from reply.end()
        yield StatusChanged(state=TaskState.COMPLETED)


class _Reply:
    """The artifact of one turn, as it grows."""

    def __init__(self, turn: Turn, form: ReplyForm, files: StoredFiles, inline_limit_bytes: int) -> None:
        self._turn = turn
        self._form = form
        self._files = files
        self._limit_bytes = inline_limit_bytes
        self._texts: list[str] = []
        self._size_bytes = 0
        self._sent_characters = 0
        # The first text is due at once.
        self._sent_at = float("-inf")

    def add(self, text: str) -> Iterator[Update]:
        """Add text; yield all text that is not sent yet, unless a chunk was sent a moment ago."""
        self._texts.append(text)
        # A provider may split a character, so half of a surrogate pair must be countable.
        self._size_bytes += len(text.encode("utf-8", "surrogatepass"))
        # Nothing is streamed above the limit, because a link will replace it.
        is_due = time.monotonic() - self._sent_at >= COALESCING_SECONDS
        if self._form is not ReplyForm.JSON and is_due and self._size_bytes <= self._limit_bytes:
            yield self._chunk(last_chunk=False)

    def end(self) -> Iterator[Update]:
        """Yield the rest of the text, or replace all of it by a link."""
        whole = _whole_characters("".join(self._texts))
        if self._form is ReplyForm.JSON:
            yield self._data(whole)
        elif self._size_bytes > self._limit_bytes:
            yield self._link(whole)
        else:
            yield self._chunk(last_chunk=True)

    def _chunk(self, *, last_chunk: bool) -> ArtifactProduced:
        text = "".join(self._texts)[self._sent_characters :]
        if not last_chunk and text and "\ud800" <= text[-1] <= "\udbff":
            text = text[:-1]  # half a character: the other half arrives with the next text
        is_first = self._sent_at == float("-inf")
        self._sent_characters += len(text)
        self._sent_at = time.monotonic()
        part = Part(text=_whole_characters(text), media_type=self._form.media_type)
        return ArtifactProduced(
            artifact=self._artifact(part, is_first=is_first), append=not is_first, last_chunk=last_chunk
        )

    def _data(self, whole: str) -> ArtifactProduced:
        try:
            value = exact_json.parse(_unfenced(whole))
        except (ValueError, RecursionError) as error:
            raise ReplyNotJson from error
        # Checked after parsing: invalid JSON must fail and not become a file.
        if self._size_bytes > self._limit_bytes:
            return self._link(_unfenced(whole))
        part = Part.model_validate({"data": value, "media_type": self._form.media_type})
        return ArtifactProduced(artifact=self._artifact(part, is_first=True))

    def _link(self, whole: str) -> ArtifactProduced:
        new = NewFile(
            key=ARTIFACT_NAME,
            name=f"{ARTIFACT_NAME}{self._form.suffix}",
            media_type=self._form.media_type,
            content=whole.encode(),
        )
        stored = self._files.store(self._turn, new)
        return ArtifactProduced(artifact=self._artifact(stored.part, is_first=True, stored=stored))

    def _artifact(self, part: Part, *, is_first: bool, stored: StoredFile | None = None) -> Artifact:
        described = self._files.describe(self._turn, stored) if stored is not None else {}
        return Artifact(
            artifact_id=str(uuid5(self._turn.id, ARTIFACT_NAME)),
            name=ARTIFACT_NAME if is_first else None,
            parts=(part,),
            extensions=tuple(described),
            metadata=described or None,
        )


def _whole_characters(text: str) -> str:
    """Join characters that a provider sent in halves; a half without its other half becomes U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unfenced(text: str) -> str:
    """Return JSON without the Markdown code fence that models tend to add."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.removesuffix("```").partition("\n")[2].strip()
    return text


def _agent_message(turn: Turn, text: str) -> Message:
    return Message(
        message_id=str(uuid5(turn.id, "message")),
        context_id=turn.context_id,
        task_id=str(turn.task_id),
        role=MessageRole.AGENT,
        parts=(Part(text=text),),
    )
