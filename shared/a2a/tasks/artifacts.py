"""Fold artifact events into artifacts: at each read while the task runs, and once when the task ends.

An appended text part continues the text part before it, so an artifact that was streamed in pieces has one text part.
Other parts are added unchanged.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from shared.a2a.exact_json import parse
from shared.a2a.types import Artifact, Part, TaskArtifactUpdateEvent
from shared.db.database import Session

_LAST = (1 << 63) - 1
_EVENTS = """
SELECT event FROM task_events
WHERE task_id = %(task_id)s AND kind = 'artifact' AND sequence > %(after)s AND sequence <= %(up_to)s
ORDER BY sequence
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """The artifacts of a task, folded from all events up to the number `sequence`."""

    artifacts: Sequence[Artifact] = ()
    sequence: int = 0


NOTHING_FOLDED = Folded()


def read_artifact_events(
    session: Session, task_id: UUID, *, after_sequence: int = 0, up_to_sequence: int = _LAST
) -> Iterator[Mapping[str, Any]]:
    """Return the artifact events of a task in order, after `after_sequence` and up to `up_to_sequence`."""
    values = {"task_id": task_id, "after": after_sequence, "up_to": up_to_sequence}
    return (parse(row.event) for row in session.fetch_all(_EVENTS, values))


def fold(events: Iterable[Mapping[str, Any]], *, onto: Sequence[Artifact] = ()) -> tuple[Artifact, ...]:
    """Return the artifacts that events add up to, in the order in which they began.

    `onto` are artifacts already folded from earlier events.
    """
    pieces = {artifact.artifact_id: [artifact] for artifact in onto}
    for event in events:
        update = TaskArtifactUpdateEvent.model_validate(event["artifactUpdate"])
        collected = pieces.setdefault(update.artifact.artifact_id, [])
        # Without `append` an event replaces the artifact, but the artifact keeps its place in the order.
        if not update.append:
            collected.clear()
        collected.append(update.artifact)
    return tuple(map(join, pieces.values()))


def join(pieces: Sequence[Artifact]) -> Artifact:
    """Join the pieces of an artifact. If pieces differ in name, description or metadata, the last piece wins."""
    if len(pieces) == 1:
        return pieces[0]
    described: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for piece in pieces:
        described |= {name: getattr(piece, name) for name in ("name", "description") if getattr(piece, name)}
        metadata |= piece.metadata or {}
    return Artifact(
        artifact_id=pieces[0].artifact_id,
        parts=_joined(pieces),
        metadata=metadata or None,
        extensions=tuple(dict.fromkeys(uri for piece in pieces for uri in piece.extensions)),
        **described,
    )


def _joined(pieces: Sequence[Artifact]) -> tuple[Part, ...]:
    """Return the parts of all pieces. Consecutive texts are collected and joined once, so the cost stays linear."""
    joined: list[Part] = []
    texts: list[str] = []
    for piece in pieces:
        first, *rest = piece.parts
        # Only the first part of a piece can continue a text: the agent itself separated the parts within a piece.
        if joined and _continues(joined[-1], first):
            texts.append(first.text or "")
        else:
            _end_text(joined, texts)
            joined.append(first)
        if rest:
            _end_text(joined, texts)
            joined.extend(rest)
    _end_text(joined, texts)
    return tuple(joined)


def _continues(before: Part, part: Part) -> bool:
    return (
        before.text is not None
        and part.text is not None
        and before.media_type == part.media_type
        # The agent means parts with metadata or names as separate parts, so do not join them.
        and not (before.metadata or part.metadata or before.filename or part.filename)
    )


def _end_text(joined: list[Part], texts: list[str]) -> None:
    if texts:
        joined[-1] = joined[-1].model_copy(update={"text": (joined[-1].text or "") + "".join(texts)})
        texts.clear()
