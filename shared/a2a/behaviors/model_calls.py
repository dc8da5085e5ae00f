"""Call a model for a turn, in this process: hold → dispatch → call → settle, once.

The same right, limits and settlement as for the calls of clients (`shared/models/execution.py`), without the queue and
the reply stream, because the asker is the worker itself. The invocation's id is made from the turn's: however often
a turn is run, one call is made for it, and a run that finds the right to call taken knows that the call may have cost
something and is never repeated.

Crash points: a hold that was not dispatched is released by its sweep; a dispatched call is settled by an estimate of
what had been noted as streamed, by its sweep; after the settlement nothing is owed, and the reply may be lost.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid5

from shared import failpoints
from shared.a2a.behaviors.waiting import TurnCancellation
from shared.a2a.turns.updates import Turn
from shared.credits import holds
from shared.database import Database
from shared.errors import DomainError, Kind
from shared.models import settling
from shared.models.call_admission import CallAdmission, refusal
from shared.models.catalog import Catalog, ModelEntry, Upstream
from shared.models.catalog_file import CatalogFile
from shared.models.dialects import Failure, ParsedRequest, Translator, parse_chat, upstream_body
from shared.models.errors import ContextLengthExceeded, ModelNotSupported
from shared.models.heartbeats import Attended, Heartbeats
from shared.models.invocations import get_model, new_invocation, require_model_access
from shared.models.providers.base import Event, UpstreamStream
from shared.models.providers.concurrency import ModelSlots
from shared.models.providers.errors import CallCancelled, ProviderError, ProviderOverloaded
from shared.models.providers.routing import Router
from shared.models.upstreams import speaking_for
from shared.replies import ReplyKind
from shared.telemetry import get_logger

log = get_logger(__name__)

SLOT_SECONDS = 300.0
"""How long a turn waits for its organization's share, or for a model that answers as many calls as it can."""
_FRAME = b"data: "


class CallRepeated(DomainError):
    """The agent was interrupted while its model answered; the reply is lost and, as it may have been charged, final."""

    code = "call_repeated"
    kind = Kind.CONFLICT


class ReplyIncomplete(DomainError):
    """The model stopped before its reply was complete: it reached the longest reply it may give."""

    code = "reply_incomplete"
    kind = Kind.UPSTREAM_FAILED


class ReplyRefused(DomainError):
    """The model refused to answer."""

    code = "reply_refused"
    kind = Kind.DENIED


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalls:
    """What a worker process calls models with."""

    database: Database
    catalog: CatalogFile
    router: Router
    slots: ModelSlots
    heartbeats: Heartbeats
    admission: CallAdmission
    reserved_completion_tokens: int

    def stream(self, turn: Turn, body: dict[str, Any]) -> Iterator[str]:
        """Call the model and give its text as it comes; settles whatever happens, also when closed early.

        Raises ModelNotFound, InvalidRequest, BillingOrganizationRequired, ModelAuthorizationDenied,
        InsufficientCredits, CreditPolicySuspended, CallRepeated, ReplyIncomplete, ReplyRefused, CallCancelled and the
        other ProviderErrors.
        """
        payer_id = require_model_access(turn.caller)
        parsed = parse_chat(body)
        entry = speaking_for(find_entry(self.catalog.current(), parsed.model), parsed)
        invocation = new_invocation(
            uuid5(turn.id, "invocation"),
            payer_id,
            turn.caller,
            entry,
            parsed,
            reserved_tokens=self.reserved_completion_tokens,
        )
        cancellation = TurnCancellation(turn)
        with self._slot(entry, cancellation):
            self._hold(invocation, cancellation)
            failpoints.hit("agents.held")
            dispatch = settling.take_dispatch(self.database, invocation.id)
            if dispatch is None:
                raise CallRepeated
            failpoints.hit("agents.dispatched")
            with self.heartbeats.attend(dispatch, _Nobody()) as attended:
                yield from self._carry_out(_Call(entry, parsed, dispatch, attended), cancellation)

    @contextlib.contextmanager
    def _slot(self, entry: ModelEntry, cancellation: TurnCancellation) -> Iterator[None]:
        """Hold one of the model's slots, waiting for one before anything is owed."""
        gives_up_at = time.monotonic() + SLOT_SECONDS
        with contextlib.ExitStack() as held:
            while True:
                try:
                    held.enter_context(self.slots.slot(entry))
                    break
                except ProviderOverloaded as error:
                    if time.monotonic() > gives_up_at:
                        raise
                    if cancellation.wait(error.retry_after_seconds):
                        raise CallCancelled(may_have_cost=False) from None
            yield

    def _hold(self, invocation: holds.NewInvocation, cancellation: TurnCancellation) -> None:
        """Hold the call's credits as soon as the organization's share of the model service allows."""
        gives_up_at = time.monotonic() + SLOT_SECONDS
        while (refused := self.admission.try_to_hold(invocation)) is not None:
            if time.monotonic() > gives_up_at:
                raise refusal(refused)
            if cancellation.wait(random.uniform(0.5, 1.0)):  # noqa: S311
                raise CallCancelled(may_have_cost=False)

    def _carry_out(self, call: _Call, cancellation: TurnCancellation) -> Iterator[str]:
        """Relay the reply and settle: by what was reported, else by what was said so far."""
        try:
            with self.router.open(
                call.entry, call.body_for, cancelled=cancellation, call_id=str(call.dispatch.invocation_id)
            ) as stream:
                call.begin(stream)
                failpoints.hit("agents.opened")
                yield from call.relay(stream)
        except BaseException as error:
            call.settle_failed(self.database, error)
            raise
        call.settle(self.database)
        failpoints.hit("agents.settled")
        call.raise_unless_complete()


class _Call:
    """One call under way."""

    def __init__(
        self, entry: ModelEntry, parsed: ParsedRequest, dispatch: holds.Dispatch, attended: Attended
    ) -> None:
        self.entry = entry
        self.dispatch = dispatch
        self._parsed = parsed
        self._attended = attended
        self._translator: Translator | None = None
        self._provider: str | None = None
        self._refusal: list[str] = []

    def body_for(self, upstream: Upstream) -> Event:
        return upstream_body(
            self._parsed, upstream.dialect, upstream.model, limit_field=upstream.provider.limit_field
        )

    def begin(self, stream: UpstreamStream) -> None:
        self._provider = stream.upstream.provider.name
        self._translator = Translator(
            self._parsed,
            upstream_dialect=stream.upstream.dialect,
            invocation_id=self.dispatch.invocation_id,
            model_id=self.entry.id,
            created=int(time.time()),
        )

    def relay(self, stream: UpstreamStream) -> Iterator[str]:
        """Give what each batch of events says as one text; while it is written down the next events gather."""
        translator = self._translator
        assert translator is not None  # noqa: S101 (made with the stream)
        for events in stream.batches():
            frames = [frame for event in events for frame in translator.feed(event)]
            if translator.failure is not None and not translator.has_started:
                raise _failed_at_once(translator.failure)
            self._attended.streamed_bytes = translator.completion_size_bytes
            text = "".join(map(self._read, frames))
            if text:
                yield text
            if translator.failure is not None:
                return
        translator.finish(saw_done=stream.saw_done)

    def settle(self, database: Database) -> None:
        assert self._translator is not None  # noqa: S101 (made with the stream)
        settling.settle(database, self.dispatch, settling.measured(self._translator, self._provider))

    def settle_failed(self, database: Database, error: BaseException) -> None:
        """Settle a call that broke off, that was cancelled, or whose text nobody takes any more (GeneratorExit)."""
        if isinstance(error, DomainError):
            known: DomainError = error
        elif isinstance(error, Exception):
            known = ProviderError(may_have_cost=True)
        else:
            known = CallCancelled(may_have_cost=True)
        outcome, _ = settling.outcome_of_failure(known, self._translator, self._provider)
        settling.settle(database, self.dispatch, outcome)
        failpoints.hit("agents.settled")

    def raise_unless_complete(self) -> None:
        assert self._translator is not None  # noqa: S101 (made with the stream)
        if self._translator.failure is not None:
            raise ProviderError(self._translator.failure.message, may_have_cost=True)
        if self._refusal:
            raise ReplyRefused("".join(self._refusal))
        if self._translator.status == "incomplete":
            raise ReplyIncomplete

    def _read(self, frame: bytes) -> str:
        """Read the text of a frame that the translator made."""
        if not frame.startswith(_FRAME + b"{"):
            return ""
        choices = json.loads(frame[len(_FRAME) :]).get("choices") or [{}]
        delta = choices[0].get("delta") or {}
        if delta.get("refusal"):
            self._refusal.append(delta["refusal"])
        return delta.get("content") or ""


def _failed_at_once(failure: Failure) -> DomainError:
    """Say what an upstream reports as its first event: nothing has been said, and nothing is owed."""
    if failure.code == ContextLengthExceeded.code:
        return ContextLengthExceeded(failure.message)
    return ProviderError(failure.message, may_have_cost=False)


class _Nobody:
    """The listener of a call whose text goes to the one who called."""

    def send(self, kind: ReplyKind, data: bytes = b"") -> bool:  # noqa: ARG002 (a listener's form)
        return True


def find_entry(catalog: Catalog, model_id: str) -> ModelEntry:
    """Get a text-producing model. Raises ModelNotFound, ModelNotSupported."""
    entry = get_model(catalog, model_id)
    if not entry.produces_text:
        raise ModelNotSupported
    return entry
