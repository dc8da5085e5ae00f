"""Put artifacts together from the events that made them, at every reading until the task ends, then once for all.

Appended text continues the text before it, so that an artifact streamed word by word reads as one part; parts of any
other kind are added as they are.
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
    """The artifacts of a task as they were after an event."""

    artifacts: Sequence[Artifact] = ()
    sequence: int = 0


NOTHING_FOLDED = Folded()


def read_artifact_events(
    session: Session, task_id: UUID, *, after_sequence: int = 0, up_to_sequence: int = _LAST
) -> Iterator[Mapping[str, Any]]:
    """Read the events that made the artifacts of a task so far, or those of them between two events."""
    values = {"task_id": task_id, "after": after_sequence, "up_to": up_to_sequence}
    return (parse(row.event) for row in session.fetch_all(_EVENTS, values))


def fold(events: Iterable[Mapping[str, Any]], *, onto: Sequence[Artifact] = ()) -> tuple[Artifact, ...]:
    """Build a task's artifacts from its artifact events, in the order in which they began.

    Those of earlier events may be folded already.
    """
    pieces = {artifact.artifact_id: [artifact] for artifact in onto}
    for event in events:
        update = TaskArtifactUpdateEvent.model_validate(event["artifactUpdate"])
        collected = pieces.setdefault(update.artifact.artifact_id, [])
        if not update.append:
            collected.clear()
        collected.append(update.artifact)
    return tuple(map(join, pieces.values()))


def join(pieces: Sequence[Artifact]) -> Artifact:
    """Join the pieces of one artifact; what a later piece says of it besides its parts replaces what was said."""
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
    """Put parts after one another; the texts of a long row of pieces are joined once, not again for each."""
    joined: list[Part] = []
    texts: list[str] = []
    for piece in pieces:
        first, *rest = piece.parts
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
        and not (before.metadata or part.metadata or before.filename or part.filename)
    )


def _end_text(joined: list[Part], texts: list[str]) -> None:
    if texts:
        joined[-1] = joined[-1].model_copy(update={"text": (joined[-1].text or "") + "".join(texts)})
        texts.clear()
