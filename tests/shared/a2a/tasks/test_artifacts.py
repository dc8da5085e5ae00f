"""Artifacts are the same whether the events that made them are folded at once or in two halves."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shared.a2a.tasks.artifacts import fold


def event(
    artifact_id: str, *parts: Mapping[str, Any], append: bool = True, **described: Any
) -> Mapping[str, Any]:
    artifact = {"artifactId": artifact_id, "parts": parts, **described}
    return {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "append": append}}


EVENTS: Sequence[Mapping[str, Any]] = (
    event("a", {"text": "one "}, append=False, name="A", metadata={"from": "first"}),
    event("a", {"text": "two "}),
    event("b", {"text": "begun by a piece"}),
    event("a", {"text": "three"}, {"data": {"n": 1}}, metadata={"from": "third"}, extensions=["urn:x"]),
    event("a", {"text": "four", "mediaType": "text/html"}, description="All of it"),
    event("b", {"text": "said anew"}, append=False),
    event("a", {"text": " five", "mediaType": "text/html"}, extensions=["urn:x", "urn:y"]),
)


@pytest.mark.parametrize("cut", range(len(EVENTS) + 1))
def test_artifacts_can_be_folded_in_two_halves(cut: int) -> None:
    assert fold(EVENTS[cut:], onto=fold(EVENTS[:cut])) == fold(EVENTS)
