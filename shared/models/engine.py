"""Carry out a call to a model, for a client or an agent: dispatch → open → translate → relay → settle, once.

The worker of `/v1` (`execution`) and agents (`shared/a2a/behaviors/model_calls`) use it; they differ in who holds the
credits and who reads the deltas. No transaction is open while tokens move. The right to call is given once; after it
nothing is repeated that may have cost something.

Every ending is charged by one rule (docs/specification/models.md#calls): what the provider reported, else a marked
estimate of what it delivered, else nothing. Dispatch and settlement are retried while the database is away, settlement
for as long as this process lives (`settlements`); if it dies, the sweeps of `shared/credits` decide by the same rule.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar
from uuid import UUID, uuid4

from shared import failpoints
from shared.credits import holds
from shared.credits.amounts import format_credits
from shared.credits.prices import TokenCounts
from shared.credits.settlement import Outcome, Status
from shared.db.database import Database
from shared.errors import DomainError, ServiceUnavailable
from shared.models.catalog import ModelEntry, Upstream, upstreams_for
from shared.models.dialects import (
    Delta,
    Failure,
    ParsedRequest,
    Translator,
    estimate_prompt_tokens,
    upstream_body,
)
from shared.models.errors import ContextLengthExceeded
from shared.models.heartbeats import Heartbeats, LeasedCall, Listener
from shared.models.providers.base import Cancellation, Event, UpstreamStream
from shared.models.providers.errors import CallCancelled, ProviderError
from shared.models.providers.routing import Router
from shared.models.settlements import Settlements
from shared.models.stream_loop import StreamLoop
from shared.observability.telemetry import get_logger
from shared.runtime.retry import retry

log = get_logger(__name__)

Chunk = TypeVar("Chunk")
NO_TOKENS = TokenCounts(prompt_tokens=0, completion_tokens=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a process carries out calls with; safe to share between threads."""

    database: Database
    router: Router
    heartbeats: Heartbeats
    settlements: Settlements
    shows_cost: bool = True
    """Whether replies say what they cost."""

    @contextmanager
    def dispatch(self, invocation_id: UUID, listener: Listener) -> Iterator[LeasedCall | None]:
        """Take the one right to make a held call and keep its lease within the block.

        Gives None where the right was given before, or the call has ended.
        """
        dispatch = self._take_dispatch(invocation_id)
        if dispatch is None:
            yield None
            return
        failpoints.hit("invocation.dispatched")
        with self.heartbeats.keep_alive(dispatch, listener) as leased:
            yield leased

    def settle(self, leased: LeasedCall, outcome: Outcome) -> str | None:
        """Charge a dispatched call for what became of it; give its cost as the reply shows it, where it does.

        Gives none where Postgres is away for so long that the call is charged later.
        """
        settled = self.settlements.settle(leased.dispatch, outcome)
        failpoints.hit("invocation.settled")
        return format_credits(settled.cost) if settled is not None and self.shows_cost else None

    def _take_dispatch(self, invocation_id: UUID) -> holds.Dispatch | None:
        token = uuid4()

        def dispatch() -> holds.Dispatch | None:
            with self.database.autocommit() as session:
                return holds.dispatch(session, invocation_id, token=token)

        try:
            return retry(dispatch)
        except ServiceUnavailable:
            log.warning("invocation.not_dispatched", invocation_id=invocation_id)
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInput:
    """What to ask of a model: the entry as it was when the credits were held, and the request."""

    entry: ModelEntry
    parsed: ParsedRequest
    created: int
    cancelled: Cancellation


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPump(Generic[Chunk]):
    """What carries a stream on once it has begun, and who is told; `send` gives False when nobody listens any more."""

    loop: StreamLoop
    send: Callable[[Chunk], bool]


class ModelCall(Generic[Chunk]):
    """A call that was dispatched, and is settled before `relay` ends, however that is."""

    def __init__(self, engine: Engine, leased: LeasedCall, read: Callable[[list[Delta]], Chunk]) -> None:
        self._engine = engine
        self._leased = leased
        self._read = read
        self._call_input: CallInput | None = None
        self._pump: StreamPump[Chunk] | None = None
        self._provider: str | None = None
        self._translator: Translator | None = None
        self.ending = read([])
        """What was read of the deltas that end the reply, well or with an error, once it was settled."""

    def relay(
        self,
        call_input: CallInput,
        slot: AbstractContextManager[None] | None = None,
        pump: StreamPump[Chunk] | None = None,
    ) -> Generator[Chunk]:
        """Ask, and give what is read of the deltas, those that arrived together at once; then settle.

        Closing this early cancels the call; what had come by then is still read, and charged. `slot` is one of the
        model's, unless it is held already. With a `pump` all but the first words are said by its loop, in order with
        what is given here. Raises the DomainError that ended the reply.
        """
        self._call_input, self._pump = call_input, pump
        try:
            with slot or nullcontext(), self._open(call_input) as stream:
                self._provider = stream.upstream.provider.name
                translator = self._translator = self._new_translator(call_input, stream.upstream)
                failpoints.hit("invocation.opened")
                yield from self._stream(stream, translator)
            translator.end(received_done_marker=stream.received_done_marker)
        except BaseException as error:
            known = _as_domain_error(error)
            if self._translator is not None:
                self._translator.fail(known.code, known.detail)
            self._settle(self._failure_outcome(known))
            if isinstance(error, DomainError) or not isinstance(error, Exception):
                raise
            raise known from error
        self._settle(self._outcome(Status(translator.status), self._provider))
        if translator.failure is not None:
            raise ProviderError(translator.failure.message, may_have_cost=True)

    @property
    def reply(self) -> Translator:
        """The reply as it was told, of a call that was answered."""
        assert self._translator is not None  # noqa: S101 (made with the answer)
        return self._translator

    def _open(self, call_input: CallInput) -> UpstreamStream:
        parsed = call_input.parsed

        def body_for(upstream: Upstream) -> Event:
            return upstream_body(
                parsed,
                upstream.dialect,
                upstream.model,
                limit_field=upstream.provider.limit_field,
                streams_only=upstream.streams_only,
            )

        if not call_input.entry.upstreams:
            raise ProviderError("The provider of this model is not configured.", may_have_cost=False)
        return self._engine.router.open(
            upstreams_for(call_input.entry, parsed),
            body_for,
            cancelled=call_input.cancelled,
            call_id=str(self._leased.dispatch.invocation_id),
        )

    def _new_translator(self, call_input: CallInput, upstream: Upstream) -> Translator:
        return Translator(
            call_input.parsed,
            upstream_dialect=upstream.dialect,
            invocation_id=self._leased.dispatch.invocation_id,
            model_id=call_input.entry.id,
            created=call_input.created,
        )

    def _stream(self, stream: UpstreamStream, translator: Translator) -> Iterator[Chunk]:
        batches = stream.batches()
        for events in batches:
            if chunk := self._feed(events, translator):
                try:
                    yield chunk
                except GeneratorExit:
                    stream.hang_up()
                    self._drain(batches, translator)
                    raise
            if translator.failure is None and self._pump is not None and stream.is_pollable:
                with stream.polling() as socket:
                    step = partial(self._step, stream, translator, self._pump)
                    self._pump.loop.pump(socket, step)
            if translator.failure is not None:
                return

    def _drain(self, batches: Iterator[list[Event]], translator: Translator) -> None:
        """Read what had come of a reply that nobody reads any more: its end says what it cost."""
        with suppress(DomainError):
            for events in batches:
                self._feed(events, translator)

    def _step(self, stream: UpstreamStream, translator: Translator, pump: StreamPump[Chunk]) -> bool:
        """Say what has come; False when the stream is for this call's own thread again."""
        events = stream.read_available()
        if events is None or ((chunk := self._feed(events, translator)) and not pump.send(chunk)):
            return False
        return translator.failure is None and stream.is_pollable

    def _feed(self, events: list[Event], translator: Translator) -> Chunk:
        deltas = [delta for event in events for delta in translator.feed(event)]
        if translator.failure is not None and not translator.has_started:
            has_cost = not self._is_streamed or translator.usage is not None
            raise _first_event_error(translator.failure, may_have_cost=has_cost)
        self._leased.streamed_bytes = translator.completion_size_bytes
        return self._read(deltas)

    def _settle(self, outcome: Outcome) -> None:
        """Charge the call, and write the end of a reply that has begun."""
        cost = self._engine.settle(self._leased, outcome)
        if self._translator is not None and self._translator.has_started:
            self.ending = self._read(self._translator.finish(cost=cost))

    def _failure_outcome(self, error: DomainError) -> Outcome:
        """Say what a failed or cancelled call is to be charged."""
        status = Status.CANCELLED if isinstance(error, CallCancelled) else Status.FAILED
        provider = self._provider
        if provider is None and isinstance(error, ProviderError):
            provider = error.provider
        translator = self._translator
        reported = translator.usage if translator is not None else None
        outcome = Outcome(status=status, counts=NO_TOKENS, provider=provider)
        if translator is not None and (translator.has_started or reported is not None):
            outcome = self._outcome(status, provider)
        is_given_up = isinstance(error, CallCancelled) and error.may_have_cost and not self._is_streamed
        if is_given_up and outcome.counts == NO_TOKENS and reported is None:
            return self._prompt_only_outcome(provider)
        return outcome

    @property
    def _is_streamed(self) -> bool:
        return self._call_input is None or self._call_input.parsed.is_stream

    def _prompt_only_outcome(self, provider: str | None) -> Outcome:
        """Charge the prompt of a whole reply that was given up: the provider has it; what it wrote nobody knows."""
        assert self._call_input is not None  # noqa: S101 (call_input before it was given up)
        counts = TokenCounts(
            prompt_tokens=estimate_prompt_tokens(self._call_input.parsed), completion_tokens=0
        )
        return Outcome(status=Status.CANCELLED, counts=counts, is_estimated=True, provider=provider)

    def _outcome(self, status: Status, provider: str | None) -> Outcome:
        counts, is_estimated = self.reply.settled_usage()
        if self.reply.is_report_implausible:
            log.warning("provider.counts_implausible", invocation_id=self._leased.dispatch.invocation_id)
        return Outcome(status=status, counts=counts, is_estimated=is_estimated, provider=provider)


def _as_domain_error(error: BaseException) -> DomainError:
    """Say what ended a call: a known error, a mistake of ours, or that nobody reads it any more."""
    if isinstance(error, DomainError):
        return error
    if not isinstance(error, Exception):
        return CallCancelled(may_have_cost=True)
    log.exception("invocation.failed")  # noqa: LOG004 (called from a handler)
    return ProviderError("The service failed while the model was answering.", may_have_cost=True)


def _first_event_error(failure: Failure, *, may_have_cost: bool) -> DomainError:
    """Answer with a status what an upstream reports as its first event: nothing was said; what it reports is owed."""
    if failure.code == ContextLengthExceeded.code:
        return ContextLengthExceeded(failure.message)
    return ProviderError(failure.message, may_have_cost=may_have_cost)
