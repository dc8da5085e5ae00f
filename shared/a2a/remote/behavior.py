"""The behavior that forwards messages to the deployment's own server, and writes its updates into our log.

The behavior first delivers the message (`delivery.py`). If there is no stream, or the stream ends before the task is
settled, the behavior then polls the agent's task (`task_polling.py`). A worker that takes over a turn continues from
the log and the turn's row, and repeats no update. If a turn ends before the agent's task, the behavior cancels the
agent's task (`cancellation.py`).
"""

from collections.abc import Iterator

from shared.a2a.behaviors.linked_files import LinkedFiles
from shared.a2a.behaviors.stored_files import StoredFiles
from shared.a2a.behaviors.turn_cancellation import TurnCancellation
from shared.a2a.remote.cancellation import RemoteCancellation
from shared.a2a.remote.connection import AgentConnector
from shared.a2a.remote.delivery import deliver
from shared.a2a.remote.endpoints import Endpoint
from shared.a2a.remote.errors import EndpointMissing
from shared.a2a.remote.parts import PartFiles
from shared.a2a.remote.reconciliation import LogCopy
from shared.a2a.remote.remote_turn import RemoteLimits, RemoteTurn, Stopped
from shared.a2a.remote.task_polling import follow
from shared.a2a.remote.task_recovery import message_id_of
from shared.a2a.remote.turn_rows import SentTurn, SentTurns, TurnGone
from shared.a2a.updates import Turn, Update
from shared.config.settings import Settings
from shared.db.database import Database

CARD_SECONDS = 30.0
"""How long a turn waits for the card of an endpoint that was just set."""
CARD_POLL_SECONDS = 1.0


class RemoteBehavior:
    """Forwards each message to the deployment's own server, and yields the server's reply."""

    def __init__(
        self, database: Database, files: StoredFiles, linked: LinkedFiles, settings: Settings
    ) -> None:
        self._files = files
        self._linked = linked
        self._inline_limit_bytes = settings.a2a_inline_artifact_bytes
        self._rows = SentTurns(database)
        self._connector = AgentConnector(database, settings)
        self._cancellation = RemoteCancellation(database, self._connector)
        self._limits = RemoteLimits(
            retry_seconds=settings.a2a_remote_retry_seconds,
            silence_seconds=settings.a2a_remote_silence_seconds,
            updates_per_second=settings.a2a_remote_updates_per_second,
        )

    def run(self, turn: Turn) -> Iterator[Update]:
        """Yield the agent's updates, until the turn is settled, is canceled, or is leased by another worker."""
        try:
            sent, endpoint = self._open(turn)
            remote = self._remote(turn, sent, endpoint)
            if remote.remote_task_id is None:
                yield from deliver(remote, endpoint)
            if not remote.is_settled:
                yield from follow(remote, streams=endpoint.streams)
        except (Stopped, TurnGone):
            return
        finally:
            # Cancel now and not in the sweep, so that the agent does not continue to work for a canceled turn.
            if turn.is_cancelled():
                self._cancellation.cancel_turn(turn.id)

    def _open(self, turn: Turn) -> tuple[SentTurn, Endpoint]:
        """Return the turn's row and the agent's endpoint. Wait until the agent's card was read for the first time."""
        cancellation = TurnCancellation(turn)
        for _ in range(round(CARD_SECONDS / CARD_POLL_SECONDS)):
            if cancellation.is_set():  # checked before the turn is marked as sent
                raise Stopped
            sent = self._rows.open(turn)
            if sent.endpoint is None:
                break
            if sent.endpoint.binding is not None:
                return sent, sent.endpoint
            cancellation.wait(CARD_POLL_SECONDS)
        raise EndpointMissing

    def _remote(self, turn: Turn, sent: SentTurn, endpoint: Endpoint) -> RemoteTurn:
        files = PartFiles(self._files, self._linked, turn, inline_limit_bytes=self._inline_limit_bytes)
        return RemoteTurn(
            turn,
            sent,
            rows=self._rows,
            connection=self._connector.connect_for(endpoint, turn),
            copy=LogCopy(files, sent.logged, message_id=message_id_of(turn.id)),
            limits=self._limits,
        )
