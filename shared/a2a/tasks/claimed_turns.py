"""A turn under a worker's lease: the updates of its agent, and which of them are in the log."""

import math
import threading
from dataclasses import dataclass, field

from shared.a2a.agent_turns.leases import Lease
from shared.a2a.agent_turns.updates import Turn, Update


class TurnLost(Exception):
    """The worker has lost the turn: it was canceled, has ended, or has a new lease. Stop and write nothing."""


@dataclass(slots=True, kw_only=True)
class ClaimedTurn:
    """A turn under this worker's lease, with its updates that are not in the log yet.

    `written` counts the turn's updates in the log. `to_skip` counts those of them that an earlier attempt wrote and
    this one has not repeated yet. `pending` are not written yet; `unconfirmed` are the first of them while the result
    of a write is unknown. `interrupted` is the update that failed with ServiceUnavailable and is about to be
    repeated. `refusal` is the error of an update that cannot be written; it fails the turn. The thread that writes
    holds `lock`.
    """

    turn: Turn
    lease: Lease
    written: int = 0
    to_skip: int = 0
    has_artifacts: bool = True
    is_settled: bool = False
    pending: list[Update] = field(default_factory=list)
    interrupted: Update | None = None
    unconfirmed: tuple[Update, ...] = ()
    refusal: Exception | None = None
    written_at: float = -math.inf
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
