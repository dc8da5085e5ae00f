"""The state of a turn under a worker's lease: which updates of its agent are in the log, and which are buffered."""

import math
import threading
from dataclasses import dataclass, field

from shared.a2a.turn_state.leases import Lease
from shared.a2a.updates import Turn, Update


class TurnLost(Exception):
    """The worker has lost the turn: the turn was canceled, has ended, or has a new lease. Stop and write nothing."""


@dataclass(slots=True, kw_only=True)
class ClaimedTurn:
    """A turn under this worker's lease, with the updates that are not in the log yet.

    `written` counts the turn's updates in the log. `to_skip` counts the updates that an earlier attempt wrote and that
    the current attempt has not repeated yet. `pending` contains the updates that are not written yet. While the result
    of a write is unknown, `unconfirmed` contains the updates of that write, which are the first of `pending`.
    `interrupted` is the update whose `append` raised ServiceUnavailable, so that the caller repeats the call. `refusal`
    is the error of an update that cannot be written; this error fails the turn. A thread holds `lock` while it writes.
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
