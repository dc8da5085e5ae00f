"""Run a dispatched model call, for a client or an agent: dispatch → open → translate → relay → settle, once.

The worker of `/v1` (`execution`) and agents (`shared/a2a/behaviors/model_calls`) use this engine. They reserve the
credits at different places and read the deltas differently. No transaction is open while tokens arrive. The right to
make a call is granted once. After the grant, no step that may have cost something is repeated.

Every call is charged by one rule (docs/specification/models.md#calls): by the token counts that the provider reported,
else by a marked estimate of the delivered reply, else nothing. Dispatch is retried for a while if the database is
unavailable; settlement is retried until the process ends (`settlements`). If the process dies, the sweeps of
`shared/credits` apply the same rule.
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
    """The dependencies of model calls in a process; safe to share between threads."""

    database: Database
    router: Router
    heartbeats: Heartbeats
    settlements: Settlements
    shows_cost: bool = True
    """Whether replies contain their cost."""

    @contextmanager
    def dispatch(self, invocation_id: UUID, listener: Listener) -> Iterator[LeasedCall | None]:
        """Acquire the right to make a held call, and keep its lease alive within the block.

        Yields None if the right was granted before, if the call has ended, or if the database is unavailable.
        """
        dispatch = self._take_dispatch(invocation_id)
        if dispatch is None:
            yield None
            return
        # A crash after this line leaves an open dispatch, which a sweep settles.
        failpoints.hit("invocation.dispatched")
        with self.heartbeats.keep_alive(dispatch, listener) as leased:
            yield leased

    def settle(self, leased: LeasedCall, outcome: Outcome) -> str | None:
        """Charge a dispatched call. Return the cost as the reply shows it, or None if replies do not show costs.

        Also returns None if Postgres is unavailable for too long; in this case the call is charged later.
        """
        settled = self.settlements.settle(leased.dispatch, outcome)
        failpoints.hit("invocation.settled")
        return format_credits(settled.cost) if settled is not None and self.shows_cost else None

    def _take_dispatch(self, invocation_id: UUID) -> holds.Dispatch | None:
        # Use one token for all attempts: if Postgres dispatched the call but its response was lost, the retry with the
        # same token succeeds.
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
    """The input of a call: the catalog entry at the time of the hold, and the request."""

    entry: ModelEntry
    parsed: ParsedRequest
    created: int
    cancelled: Cancellation


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPump(Generic[Chunk]):
    """The loop that reads a stream after the first events, and the function that sends the stream's chunks.

    `send` returns False if the receiver has gone.
    """

    loop: StreamLoop
    send: Callable[[Chunk], bool]


class ModelCall(Generic[Chunk]):
    """A dispatched call. With any outcome, `relay` settles the call before `relay` itself ends."""

    def __init__(self, engine: Engine, leased: LeasedCall, read: Callable[[list[Delta]], Chunk]) -> None:
        self._engine = engine
        self._leased = leased
        self._read = read
        self._call_input: CallInput | None = None
        self._pump: StreamPump[Chunk] | None = None
        self._provider: str | None = None
        self._translator: Translator | None = None
        self.ending = read([])
        """The last chunk of the reply: its end, or the error that ended it. Set by the settlement."""

    def relay(
        self,
        call_input: CallInput,
        slot: AbstractContextManager[None] | None = None,
        pump: StreamPump[Chunk] | None = None,
    ) -> Generator[Chunk]:
        """Call the upstream, yield chunks of the reply, then settle. Events that arrive together make one chunk.

        Closing the generator cancels the call; events that have already arrived are still read and charged. `slot` is a
        slot of the model, occupied while the upstream works. With a `pump`, only the first chunks are yielded, and the
        pump's loop sends the later chunks in order. Raises the DomainError that ended the reply.
        """
        self._call_input, self._pump = call_input, pump
        try:
            with slot or nullcontext(), self._open(call_input) as stream:
                self._provider = stream.upstream.provider.name
                translator = self._translator = self._new_translator(call_input, stream.upstream)
                failpoints.hit("invocation.opened")
                yield from self._stream(stream, translator)
            # Leave the block first, which releases the slot: the upstream has finished, and settling may take seconds.
            translator.end(received_done_marker=stream.received_done_marker)
        # Catch BaseException, because a call with a closed generator (GeneratorExit) must be settled too.
        except BaseException as error:
            known = _as_domain_error(error)
            if self._translator is not None:
                self._translator.fail(known.code, known.detail)
            self._settle(self._failure_outcome(known))
            if isinstance(error, DomainError) or not isinstance(error, Exception):
                raise
            # Replace an unknown exception, because its text could disclose internals to the client.
            raise known from error
        self._settle(self._outcome(Status(translator.status), self._provider))
        if translator.failure is not None:
            raise ProviderError(translator.failure.message, may_have_cost=True)

    @property
    def reply(self) -> Translator:
        """The translated reply of a call that reached an upstream."""
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
                    # Make the upstream stop generating, then read only the bytes that have already arrived.
                    stream.hang_up()
                    self._drain(batches, translator)
                    raise
            # Start the loop after this thread has yielded the first chunk, so that the chunks stay in order.
            if translator.failure is None and self._pump is not None and stream.is_pollable:
                with stream.polling() as socket:
                    step = partial(self._step, stream, translator, self._pump)
                    self._pump.loop.pump(socket, step)
            if translator.failure is not None:
                return

    def _drain(self, batches: Iterator[list[Event]], translator: Translator) -> None:
        """Read the rest of a reply after its reader has left, because the last events report the reply's cost."""
        with suppress(DomainError):
            for events in batches:
                self._feed(events, translator)

    def _step(self, stream: UpstreamStream, translator: Translator, pump: StreamPump[Chunk]) -> bool:
        """Send the events that have arrived, as one chunk. Return False if the call's own thread must continue."""
        events = stream.read_available()
        if events is None or ((chunk := self._feed(events, translator)) and not pump.send(chunk)):
            return False
        return translator.failure is None and stream.is_pollable

    def _feed(self, events: list[Event], translator: Translator) -> Chunk:
        deltas = [delta for event in events for delta in translator.feed(event)]
        if translator.failure is not None and not translator.has_started:
            # A failed plain reply may have cost something: the upstream may have generated text. A stream that fails in
            # its first event cost nothing, unless it reports usage.
            has_cost = not self._is_streamed or translator.usage is not None
            raise _first_event_error(translator.failure, may_have_cost=has_cost)
        # The heartbeats write this number to the lease. If the process dies, a sweep charges the call by it.
        self._leased.streamed_bytes = translator.completion_size_bytes
        return self._read(deltas)

    def _settle(self, outcome: Outcome) -> None:
        """Charge the call, and set `ending` if the reply has begun."""
        cost = self._engine.settle(self._leased, outcome)
        if self._translator is not None and self._translator.has_started:
            self.ending = self._read(self._translator.finish(cost=cost))

    def _failure_outcome(self, error: DomainError) -> Outcome:
        """Return the charge of a failed or cancelled call."""
        status = Status.CANCELLED if isinstance(error, CallCancelled) else Status.FAILED
        provider = self._provider
        # If no stream was opened, only the error names the provider that failed.
        if provider is None and isinstance(error, ProviderError):
            provider = error.provider
        translator = self._translator
        reported = translator.usage if translator is not None else None
        # Charge nothing unless events arrived: an upstream that only failed reported no cost.
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
        """Return the charge of an abandoned plain reply: the prompt alone, because the generated length is unknown."""
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
    """Convert the exception that ended a call to a DomainError.

    GeneratorExit becomes CallCancelled; an unknown exception is logged and becomes ProviderError.
    """
    if isinstance(error, DomainError):
        return error
    if not isinstance(error, Exception):
        return CallCancelled(may_have_cost=True)
    log.exception("invocation.failed")  # noqa: LOG004 (called from a handler)
    return ProviderError("The service failed while the model was replying.", may_have_cost=True)


def _first_event_error(failure: Failure, *, may_have_cost: bool) -> DomainError:
    """Return the error for a failure in the upstream's first event. The client gets this error as an HTTP response."""
    if failure.code == ContextLengthExceeded.code:
        return ContextLengthExceeded(failure.message)
    return ProviderError(failure.message, may_have_cost=may_have_cost)
