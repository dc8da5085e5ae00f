"""The worker's door to the engine: carry out an accepted call, and tell the front that waits for it.

The last frame goes out only when the call has been settled: what the client reads has been charged.
"""

from contextlib import closing
from dataclasses import dataclass, field, replace
from uuid import UUID

import redis

from shared.cancel_marks import is_cancelled
from shared.credits.settlement import Outcome, Status
from shared.errors import DomainError, Unavailable
from shared.models.call_queue import AcceptedRequest, CallQueue
from shared.models.catalog import ModelEntry
from shared.models.catalog_file import CatalogFile
from shared.models.dialects import DONE, frame_writer
from shared.models.engine import NOTHING, Asked, Engine, ModelCall
from shared.models.heartbeats import Attended
from shared.models.providers.errors import CallCancelled
from shared.models.reply_waiting import describe_failure
from shared.replies import ReplyAddress, ReplyKind, ReplyWriter
from shared.reply_lane import ReplyLane
from shared.telemetry import get_logger

log = get_logger(__name__)

_REQUEST_LOST = "The call was lost before it began, and nothing was charged; try again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """What a worker process carries out calls with."""

    engine: Engine
    valkey: redis.Redis
    queue: CallQueue
    catalog: CatalogFile
    lane: ReplyLane = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lane", ReplyLane(self.valkey))


def execute(executor: Executor, address: ReplyAddress) -> None:
    """Carry out an invocation, unless another worker has, it has ended, or its request is gone."""
    with (
        closing(ReplyWriter(executor.lane, address)) as writer,
        executor.engine.dispatch(address.invocation_id, writer) as attended,
    ):
        if attended is None:
            return
        request = _take(executor, address.invocation_id)
        if request is None:
            _end_unmade(executor, attended)
        else:
            _carry_out(executor, request, attended)


def _take(executor: Executor, invocation_id: UUID) -> AcceptedRequest | None:
    try:
        return executor.queue.take_request(invocation_id)
    except redis.RedisError as error:
        log.warning("request.not_taken", invocation_id=invocation_id, error=str(error))
        return None


def _end_unmade(executor: Executor, attended: Attended) -> None:
    """End a call whose request is gone: withdrawn by the front that waited for it, or lost."""
    is_withdrawn = _is_cancelled(executor, attended.dispatch.invocation_id)
    status = Status.CANCELLED if is_withdrawn else Status.FAILED
    executor.engine.settle(attended, Outcome(status=status, counts=NOTHING))
    attended.send(ReplyKind.FAILED, describe_failure(Unavailable(_REQUEST_LOST)))


def _is_cancelled(executor: Executor, invocation_id: UUID) -> bool:
    try:
        return is_cancelled(executor.valkey, invocation_id)
    except redis.RedisError:
        return False


def _carry_out(executor: Executor, request: AcceptedRequest, attended: Attended) -> None:
    parsed, entry = request.parsed(), _trusted(request.entry, executor.catalog)
    call = ModelCall(executor.engine, attended, frame_writer(parsed.dialect))
    asked = Asked(entry=entry, parsed=parsed, created=request.created, cancelled=attended.cancelled)
    try:
        with closing(call.relay(asked, executor.engine.slots.slot(entry))) as frames:
            for data in frames:
                if not attended.send(ReplyKind.DATA, data):
                    raise CallCancelled(may_have_cost=True)
    except DomainError as error:
        _say_failed(error, attended, call.ending)
    else:
        attended.send(ReplyKind.END, call.ending + DONE if request.is_stream else call.reply.body())


def _trusted(entry: ModelEntry, catalog: CatalogFile) -> ModelEntry:
    """Leave out upstreams whose secrets the worker's own catalog has never sent to that address; maybe all.

    Else a writer to Valkey could have a secret sent elsewhere.
    """
    upstreams = tuple(at for at in entry.upstreams if catalog.trusts(at.provider))
    return entry if len(upstreams) == len(entry.upstreams) else replace(entry, upstreams=upstreams)


def _say_failed(error: DomainError, attended: Attended, frames: bytes) -> None:
    """End a stream that has begun with its error frames; answer any other with the error itself."""
    if attended.has_sent_data:
        attended.send(ReplyKind.END, frames + DONE)
    else:
        attended.send(ReplyKind.FAILED, describe_failure(error))
