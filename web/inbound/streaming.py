"""Stream an agent's response to a distribution's message, in the format of the task's streams.

The stream sends nothing until the message is routed. If the message is refused within ten seconds, the client
gets an error response. After that, the client gets an event named `error`. The distribution is authorized
repeatedly while the stream lasts.
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
from web.a2a.streams import Frames, KeepAlive, StreamSource, message_frames, stream_generator, with_slot
from web.dependencies.services import Services
from web.error_responses.error_formats import Dialects
from web.error_responses.status_codes import STATUSES
from web.framework.calls import RequestContext, request_id
from web.framework.deferred_responses import PendingResponse, stream_when_ready
from web.framework.revocation import Watch, until_revoked

# While a message's attachments are imported, read the message this often. A wake-up reports its routing
# earlier.
POLL_SECONDS = 2.0


def stream_agent_response(
    call: RequestContext, distribution_id: UUID, proof: Proof, receive: Callable[[], IntakeResult]
) -> Response:
    """Receive a message once the stream has a slot, and stream the response.

    Raises the errors of `receive`, MessageRefused, TaskNotFound, TooManyStreams, ConcurrencyLimited,
    PoolExhausted.
    """
    pending = PendingResponse(call.http.environ, idle_seconds=POLL_SECONDS, is_blocking=True)
    frames = _frames(call.services, receive, pending)
    frames = with_slot(call.services.agents.slots, call.admission.key, frames)
    frames = until_revoked(frames, _watch(call, distribution_id, proof), pending.wake_up.notify)
    dialects = Dialects(base_url=call.services.settings.base_url)
    return stream_when_ready(stream_generator(frames, partial(_problem, dialects, request_id())), pending)


def _frames(services: Services, receive: Callable[[], IntakeResult], pending: PendingResponse) -> Frames:
    received = receive()
    sent = received.sent or (yield from _await_routing(services, received.message, pending))
    source = partial(_source, services, pending)
    yield from message_frames(source, lambda: sent)


def _await_routing(
    services: Services, message: DistributionMessage, pending: PendingResponse
) -> Generator[bytes | None, None, AcceptedMessage]:
    """Wait until a message is routed or refused. Return the accepted message."""
    keep_alive = KeepAlive()
    # A wake-up message reports the routing at once. If it is lost, the message is read every POLL_SECONDS.
    with services.agents.watch.watch(message.task_id, pending.wake_up) as watch:
        while message.state is MessageState.WAITING:
            watch.wait(pending.seconds())
            yield keep_alive.comment_if_due()
            with services.database.autocommit() as session:
                message = get_message(session, message.id)
            # End only the stream: the message is stored and will be routed, and a repeated push finds it.
            if message.state is MessageState.WAITING and pending.is_shutting_down:
                raise ServiceUnavailable(
                    "This server is stopping before the message is routed. Send it again."
                )
    with services.database.transaction() as session:
        return get_routed(session, message)


def _source(services: Services, pending: PendingResponse, task_id: UUID) -> StreamSource:
    return StreamSource(
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
