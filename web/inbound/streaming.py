"""Stream what the agent says about a distribution's message, as streams of its task have it.

Until the message is routed there is nothing to tell; a refusal that comes within ten seconds is an answer with its own
status, a later one an event named `error`. The distribution is looked at again while the stream lasts.
"""

from collections.abc import Callable, Generator
from functools import partial
from uuid import UUID

from flask import Response

from shared.a2a.inbound.intake import IntakeResult, get_routed
from shared.a2a.inbound.messages import DistributionMessage, MessageState, get_message
from shared.a2a.tasks.submission import AcceptedMessage
from shared.db.database import Database
from shared.errors import DomainError, ServiceUnavailable
from shared.identity.authentication.revocation_watcher import Permit
from shared.media.importing.authority import Proof, authorize_message
from web.a2a.streams import Frames, Pace, Source, answer_frames, in_slot, stream_steps
from web.dependencies.services import Services
from web.error_responses.error_formats import Dialects
from web.error_responses.status_codes import STATUSES
from web.framework.calls import RequestContext, request_id
from web.framework.deferred_responses import PendingResponse, stream_when_ready
from web.framework.revocation import Watch, until_revoked

LOOK_SECONDS = 2.0
"""How often a message is looked at that waits for its attachments; its task tells sooner that it was routed."""


def stream_agent_answer(
    call: RequestContext, distribution_id: UUID, proof: Proof, receive: Callable[[], IntakeResult]
) -> Response:
    """Receive a message once there is room for a stream, and stream the answer.

    Raises what `receive` raises, MessageRefused, TaskNotFound, TooManyStreams, ConcurrencyLimited, PoolExhausted.
    """
    pending = PendingResponse(call.http.environ, idle_seconds=LOOK_SECONDS, is_blocking=True)
    frames = _frames(call.services, receive, pending)
    frames = in_slot(call.services.agents.slots, call.admission.key, frames)
    frames = until_revoked(frames, _watch(call, distribution_id, proof), pending.wake_up.notify)
    dialects = Dialects(base_url=call.services.settings.base_url)
    return stream_when_ready(stream_steps(frames, partial(_problem, dialects, request_id())), pending)


def _frames(services: Services, receive: Callable[[], IntakeResult], pending: PendingResponse) -> Frames:
    received = receive()
    sent = received.sent or (yield from _await_routing(services, received.message, pending))
    source = partial(_source, services, pending)
    yield from answer_frames(source, lambda: sent)


def _await_routing(
    services: Services, message: DistributionMessage, pending: PendingResponse
) -> Generator[bytes | None, None, AcceptedMessage]:
    """Wait until a message is routed or refused; give how it was sent."""
    pace = Pace()
    with services.agents.watch.watch(message.task_id, pending.wake_up) as watch:
        while message.state is MessageState.WAITING:
            watch.wait(pending.seconds())
            yield pace.comment()
            with services.database.autocommit() as session:
                message = get_message(session, message.id)
            if message.state is MessageState.WAITING and pending.is_shutting_down:
                raise ServiceUnavailable("This server stops before the message is routed; send it again.")
    with services.database.transaction() as session:
        return get_routed(session, message)


def _source(services: Services, pending: PendingResponse, task_id: UUID) -> Source:
    return Source(
        database=services.database,
        services=services.agents,
        task_id=task_id,
        resume_after=None,
        rpc=None,
        pending=pending,
    )


def _watch(call: RequestContext, distribution_id: UUID, proof: Proof) -> Watch:
    current = partial(_authorize, call.services.database, distribution_id, proof)
    permit = Permit(key=("message", distribution_id, proof), current=current)
    return partial(call.services.running.watch_permit, permit, lambda _: None)


def _authorize(database: Database, distribution_id: UUID, proof: Proof) -> None:
    with database.autocommit() as session:
        authorize_message(session, distribution_id, proof)


def _problem(dialects: Dialects, request: str, error: DomainError) -> object:
    return dialects.problem(STATUSES[error.kind], error.code, error.detail, request_id=request).body
