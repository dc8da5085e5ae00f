"""Carry out a call to a model: the worker's half of an invocation.

dispatch → call → settle, each a short transaction of its own and none open while tokens move. The right to call is
given once; after it nothing is ever repeated that may have cost something. Whatever becomes of the client, the call
is settled by what the provider reported, else by an estimate that says so; if this process dies, the open dispatch
tells a sweep what may have been consumed.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from uuid import UUID

import redis

from shared import failpoints
from shared.credits import holds
from shared.credits.settlement import Outcome, Status
from shared.database import Database
from shared.errors import DomainError, Unavailable
from shared.models import settling
from shared.models.call_queue import AcceptedRequest, CallQueue
from shared.models.catalog import ModelEntry, Upstream
from shared.models.catalog_file import CatalogFile
from shared.models.dialects import Failure, Translator, upstream_body
from shared.models.entry_transport import trusted
from shared.models.errors import ContextLengthExceeded
from shared.models.heartbeats import Attended, Heartbeats
from shared.models.providers.base import Event, UpstreamStream
from shared.models.providers.concurrency import ModelSlots
from shared.models.providers.errors import CallCancelled, ProviderError
from shared.models.providers.routing import Router
from shared.models.reply_waiting import describe_failure
from shared.models.upstreams import speaking_for
from shared.replies import ReplyAddress, ReplyKind, ReplyWriter, is_cancelled
from shared.telemetry import get_logger

log = get_logger(__name__)

_REQUEST_LOST = "The call was lost before it began, and nothing was charged; try again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """What a worker process carries out calls with."""

    database: Database
    valkey: redis.Redis
    queue: CallQueue
    catalog: CatalogFile
    router: Router
    slots: ModelSlots
    heartbeats: Heartbeats


def execute(executor: Executor, address: ReplyAddress) -> None:
    """Carry out an invocation, unless another worker has, it has ended, or its request is gone."""
    dispatch = settling.take_dispatch(executor.database, address.invocation_id)
    if dispatch is None:
        return
    failpoints.hit("invocation.dispatched")
    with (
        closing(ReplyWriter(executor.valkey, address)) as writer,
        executor.heartbeats.attend(dispatch, writer) as attended,
    ):
        request = _take(executor, address.invocation_id)
        if request is None:
            _end_unmade(executor, dispatch, attended)
        else:
            _carry_out(executor, dispatch, request, attended)


def _take(executor: Executor, invocation_id: UUID) -> AcceptedRequest | None:
    try:
        return executor.queue.take_request(invocation_id)
    except redis.RedisError as error:
        log.warning("request.not_taken", invocation_id=invocation_id, error=str(error))
        return None


def _end_unmade(executor: Executor, dispatch: holds.Dispatch, attended: Attended) -> None:
    """End a call whose request is gone: withdrawn by the front that waited for it, or lost."""
    status = Status.CANCELLED if _is_cancelled(executor, dispatch.invocation_id) else Status.FAILED
    settling.settle(executor.database, dispatch, Outcome(status=status, counts=settling.NOTHING))
    attended.send(ReplyKind.FAILED, describe_failure(Unavailable(_REQUEST_LOST)))


def _is_cancelled(executor: Executor, invocation_id: UUID) -> bool:
    try:
        return is_cancelled(executor.valkey, invocation_id)
    except redis.RedisError:
        return False


def _carry_out(
    executor: Executor, dispatch: holds.Dispatch, request: AcceptedRequest, attended: Attended
) -> None:
    """Call, settle, and only then say that it is over: what the client reads has been charged."""
    entry = trusted(request.entry, executor.catalog)
    translator: Translator | None = None
    provider: str | None = None
    try:
        if not entry.upstreams:
            raise ProviderError("The provider of this model is not configured.", may_have_cost=False)
        with executor.slots.slot(entry), _open(executor, entry, request, dispatch, attended) as stream:
            provider = stream.upstream.provider.name
            translator = _translator(request, entry, stream.upstream, dispatch.invocation_id)
            failpoints.hit("invocation.opened")
            frames = _relay(stream, translator, attended)
    except Exception as unforeseen:  # noqa: BLE001 (whatever it was, the call is settled and the client told)
        error = _foreseen(unforeseen)
        outcome, frames = settling.outcome_of_failure(error, translator, provider)
        settling.settle(executor.database, dispatch, outcome)
        failpoints.hit("invocation.settled")
        _say_failed(error, attended, frames)
        return
    assert translator is not None  # noqa: S101 (set with the stream)
    settling.settle(executor.database, dispatch, settling.measured(translator, provider))
    failpoints.hit("invocation.settled")
    if translator.failure is not None and not request.is_stream:
        error = ProviderError(translator.failure.message, may_have_cost=True)
        _say_failed(error, attended, frames)
    else:
        attended.send(ReplyKind.END, b"".join(frames) if request.is_stream else translator.body())


def _open(
    executor: Executor,
    entry: ModelEntry,
    request: AcceptedRequest,
    dispatch: holds.Dispatch,
    attended: Attended,
) -> UpstreamStream:
    parsed = request.parsed()
    entry = speaking_for(entry, parsed)

    def body_for(upstream: Upstream) -> Event:
        return upstream_body(
            parsed, upstream.dialect, upstream.model, limit_field=upstream.provider.limit_field
        )

    return executor.router.open(
        entry, body_for, cancelled=attended.cancelled, call_id=str(dispatch.invocation_id)
    )


def _translator(
    request: AcceptedRequest, entry: ModelEntry, upstream: Upstream, invocation_id: UUID
) -> Translator:
    return Translator(
        request.parsed(),
        upstream_dialect=upstream.dialect,
        invocation_id=invocation_id,
        model_id=entry.id,
        created=request.created,
    )


def _relay(stream: UpstreamStream, translator: Translator, attended: Attended) -> list[bytes]:
    """Send on what arrives, what arrived together as one reply; give the frames that end the stream.

    Reading sets the pace: while a reply is being sent the next events gather in the connection.
    """
    for events in stream.batches():
        frames = [frame for event in events for frame in translator.feed(event)]
        if translator.failure is not None and not translator.has_started:
            raise _failed_at_once(translator.failure)
        attended.streamed_bytes = translator.completion_size_bytes
        if frames and not attended.send(ReplyKind.DATA, b"".join(frames)):
            raise CallCancelled(may_have_cost=True)
        if translator.failure is not None:
            break
    return translator.finish(saw_done=stream.saw_done)


def _foreseen(error: Exception) -> DomainError:
    if isinstance(error, DomainError):
        return error
    log.exception("invocation.failed")  # noqa: LOG004 (called from a handler)
    return ProviderError("The service failed while the model was answering.", may_have_cost=True)


def _failed_at_once(failure: Failure) -> DomainError:
    """Answer with a status what an upstream reports as its first event: nothing has been said, and nothing is owed."""
    if failure.code == ContextLengthExceeded.code:
        return ContextLengthExceeded(failure.message)
    return ProviderError(failure.message, may_have_cost=False)


def _say_failed(error: DomainError, attended: Attended, frames: list[bytes]) -> None:
    """End a stream that has begun with its error frames; answer any other with the error itself."""
    if attended.has_sent_data:
        attended.send(ReplyKind.END, b"".join(frames))
    else:
        attended.send(ReplyKind.FAILED, describe_failure(error))
