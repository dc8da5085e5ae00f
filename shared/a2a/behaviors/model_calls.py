"""Call a model for a turn, in this process: hold credits, then dispatch to the engine, once.

Permission, limits and settlement are the same as for calls of clients (`shared/models/engine.py`). No queue and no
reply channel are needed, because the worker itself makes the call. The call's id is derived from the turn's id, so a
provider is called once, even if the turn runs several times. If an earlier run has dispatched the call, the call may
have a cost and is never repeated. If an earlier run held credits but did not dispatch the call, and the hold has
expired or has another amount, the hold is voided and the call gets another id.

If the worker dies before the dispatch, a sweep voids the hold. If the worker dies after the dispatch, a sweep settles
the call with an estimate from the streamed text. If the worker dies after the settlement, only the reply may be lost.
"""

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from shared import failpoints
from shared.a2a.behaviors.turn_cancellation import TurnCancellation
from shared.a2a.turn_state.rows import calls_of
from shared.a2a.updates import Turn
from shared.credits import holds
from shared.credits.errors import InvocationConflict
from shared.errors import DomainError, Kind, ServiceUnavailable
from shared.messaging.replies import ReplyKind
from shared.models.call_admission import Attempt, CallAdmission
from shared.models.catalog import Catalog, ModelEntry, upstreams_for
from shared.models.catalog_file import CatalogFile
from shared.models.dialects import Delta, parse_chat
from shared.models.engine import CallInput, Engine, ModelCall
from shared.models.errors import ModelNotSupported
from shared.models.heartbeats import LeasedCall
from shared.models.invocations import get_model, new_invocation, require_model_access
from shared.models.providers.errors import CallCancelled
from shared.runtime.retry import retry

SLOT_SECONDS = 300.0
"""How long a turn waits for its organization's share, or for a free slot of a model with a concurrency limit."""


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
    """The engine, catalog and admission with which a worker calls models."""

    engine: Engine
    catalog: CatalogFile
    admission: CallAdmission
    reserved_completion_tokens: int

    def stream(self, turn: Turn, body: dict[str, Any]) -> Iterator[str]:
        """Call the model and yield its text as it arrives. The call is settled even if the caller closes the generator.

        Raises ModelNotFound, InvalidRequest, BillingOrganizationRequired, ModelAuthorizationDenied,
        InsufficientCredits, CreditPolicySuspended, CallRepeated, ReplyIncomplete, ReplyRefused, CallCancelled and the
        other ProviderErrors.
        """
        payer_id = require_model_access(turn.caller)
        parsed = parse_chat(body)
        entry = upstreams_for(find_entry(self.catalog.current(), parsed.model), parsed)
        reserved = self.reserved_completion_tokens
        cancellation = TurnCancellation(turn)
        call_input = CallInput(entry=entry, parsed=parsed, created=int(time.time()), cancelled=cancellation)
        with self._slot(entry, payer_id, cancellation):
            for call_id in calls_of(turn.id):
                call = new_invocation(call_id, payer_id, turn.caller, entry, parsed, reserved_tokens=reserved)
                with self._dispatched(call, cancellation) as leased:
                    if leased is not None:
                        yield from _relay(self.engine, leased, call_input)
                        return
                if not self._release_hold(call_id):
                    break
        raise CallRepeated

    def _release_hold(self, call_id: UUID) -> bool:
        """Void the hold of a call that was not dispatched. Return False if a provider may have been called."""

        def release_once() -> bool:
            with self.engine.database.autocommit() as session:
                return holds.ensure_voided(session, call_id)

        try:
            return retry(release_once)
        except ServiceUnavailable:
            return False

    @contextlib.contextmanager
    def _slot(self, entry: ModelEntry, payer_id: UUID, cancellation: TurnCancellation) -> Iterator[None]:
        """Hold a slot if the model has a concurrency limit. The wait for a slot comes before credits are held."""
        limit, taken_for = entry.concurrency_limit, uuid4()
        if limit is None:
            yield
            return
        take = partial(self.admission.try_to_take, taken_for, payer_id, model=entry.id, limit=limit)
        try:
            _wait_for_admission(take, cancellation)
            yield
        finally:
            self.admission.end(taken_for)

    @contextlib.contextmanager
    def _dispatched(
        self, call: holds.NewInvocation, cancellation: TurnCancellation
    ) -> Iterator[LeasedCall | None]:
        """Hold credits and dispatch the call. Yield None if an earlier run has dispatched it, or may have."""
        if not self._hold(call, cancellation):
            yield None
            return
        # Crash point: credits are held, but no provider was called.
        failpoints.hit("agents.held")
        try:
            with self.engine.dispatch(call.id, _NullListener()) as leased:
                yield leased
        finally:
            self.admission.end(call.id)

    def _hold(self, call: holds.NewInvocation, cancellation: TurnCancellation) -> bool:
        """Hold the call's credits as soon as the organization's share of the model service allows.

        Returns False if an earlier run held another amount: the price of the model, or the agent's model, has changed.
        """
        try:
            _wait_for_admission(partial(self.admission.try_to_hold, call), cancellation)
        except InvocationConflict:
            return False
        return True


def _wait_for_admission(attempt: Attempt, cancellation: TurnCancellation) -> None:
    """Repeat an attempt until it is admitted. Raises CallCancelled, or the last refusal after `SLOT_SECONDS`."""
    gives_up_at = time.monotonic() + SLOT_SECONDS
    while (refused := attempt()) is not None:
        if time.monotonic() > gives_up_at:
            raise refused
        # Wait for a random time, so that turns that wait for the same slot do not retry at the same time.
        if cancellation.wait(random.uniform(0.5, 1.0)):  # noqa: S311
            raise CallCancelled(may_have_cost=False)


def _relay(engine: Engine, leased: LeasedCall, call_input: CallInput) -> Iterator[str]:
    """Yield the text of a dispatched call as it arrives. Raises ReplyRefused, ReplyIncomplete, ProviderErrors."""
    reply_text = _ReplyText()
    call = ModelCall(engine, leased, reply_text.read)
    yield from call.relay(call_input)
    if reply_text.refusal:
        raise ReplyRefused(reply_text.refusal)
    if call.reply.status == "incomplete":
        raise ReplyIncomplete


class _ReplyText:
    """Splits a model's deltas into text, which is passed on, and the text of a refusal, which is collected."""

    def __init__(self) -> None:
        self.refusal = ""

    def read(self, deltas: list[Delta]) -> str:
        self.refusal += "".join([delta.refusal for delta in deltas])
        return "".join([delta.text for delta in deltas])


class _NullListener:
    """A listener that drops all replies: the worker reads the text of the call directly."""

    def send(self, kind: ReplyKind, data: bytes = b"") -> bool:  # noqa: ARG002 (a listener's form)
        return True


def find_entry(catalog: Catalog, model_id: str) -> ModelEntry:
    """Return a model that produces text. Raises ModelNotFound, ModelNotSupported."""
    entry = get_model(catalog, model_id)
    if not entry.produces_text:
        raise ModelNotSupported
    return entry
