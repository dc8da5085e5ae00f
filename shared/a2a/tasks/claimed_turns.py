"""A turn under a worker's lease: what its agent has said, and how much of that is in the log."""

import math
import threading
from dataclasses import dataclass, field

from shared.a2a.agent_turns.leases import Lease
from shared.a2a.agent_turns.updates import Turn, Update


class TurnLost(Exception):
    """This worker no longer has the turn: it was cancelled, ended, or is another's. Stop, and write nothing."""


@dataclass(slots=True, kw_only=True)
class ClaimedTurn:
    """A turn under this worker's lease.

    `written` counts the turn's updates in the log; `to_skip` those of them that an earlier attempt wrote and that this
    one has not said again yet. `pending` are said and not written. `unconfirmed` are the first of them while the
    database has not said whether they are written; `interrupted` is the last one said, which is then said again.
    `refusal` says why one of them can never be written, and fails the turn. `lock` is held by the thread that writes.
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
