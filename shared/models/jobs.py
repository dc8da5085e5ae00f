"""The background work of the model domain."""

from __future__ import annotations

from dataclasses import dataclass

from shared.jobs import MODELS, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoke(Job):
    """A model has been called; `stream` is where the front that accepted the call waits for replies.

    Unlike other jobs this one names its work, and nobody looks for it if the message is lost: the client has gone or
    is told to try again, and the hold is released by its own sweep.
    """

    kind = "models.invoke"
    queue = MODELS

    invocation_id: str
    stream: str
