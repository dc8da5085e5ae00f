"""A connection whose answer waits: what is to be sent of it, and who may ask it for more."""

from enum import Enum, auto
from typing import Any

from shared.observability.telemetry import get_logger
from shared.runtime.deferred_responses import DeferredResponse

log = get_logger(__name__)

OUTBOX_BYTES = 64 << 10
PIECES_AT_ONCE = 50


class Outbox(bytearray):
    """Stands in for the socket in gunicorn's response: keeps what is to be sent."""

    sendall = bytearray.extend


class State(Enum):
    """What an answer does at the moment; `ASKED` also while it waits for a thread to be asked on."""

    IDLE = auto()
    QUEUED = auto()
    ASKED = auto()
    OVER = auto()


class HeldConnection:
    """A connection whose answer is under way; `response` is gunicorn's, which frames it."""

    __slots__ = (
        *("answer", "conn", "fd", "is_ended", "is_gone", "is_rung", "outbox"),
        *("response", "resume_at", "stalled_at", "state"),
    )

    def __init__(self, conn: Any, response: Any, answer: DeferredResponse) -> None:
        self.conn = conn
        self.answer = answer
        self.fd: int = conn.sock.fileno()
        self.outbox = response.sock = Outbox()
        self.response = response
        self.state = State.IDLE
        self.is_rung = self.is_ended = self.is_gone = False
        self.resume_at = 0.0
        self.stalled_at: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether the client should first take what there is."""
        return len(self.outbox) > OUTBOX_BYTES

    def let_go(self) -> None:
        """Keep nothing of an answer that is over: its wake-up, and the times to look at it, know this for a while."""
        del self.conn, self.answer, self.response, self.outbox

    def ask(self) -> None:
        """Put the next pieces into the outbox."""
        for _ in range(PIECES_AT_ONCE):
            if self.is_full or self.is_gone:
                return
            try:
                piece = next(self.answer, None)
                if not piece:
                    break
                self.response.write(piece)
            except Exception:  # as gunicorn has it: an answer that has begun can only be broken off
                log.exception("answer.failed")
                self.is_gone = True
                return
        else:
            self.is_rung = True
            return
        if piece is None:
            self.response.close()
            self.is_ended = True
