"""The behavior that sends messages on to the deployment's own server, and writes what comes back into our log.

deliver (`sending.py`) → follow (`following.py`), when the stream of the answer has ended early or there was none. A
worker that takes a turn over begins with what the log and the row of the turn say, and repeats nothing.
"""

from collections.abc import Iterator, Mapping

from shared.a2a.behaviors.stored_files import StoredFiles
from shared.a2a.behaviors.waiting import TurnCancellation
from shared.a2a.remote.bindings import AgentBinding
from shared.a2a.remote.connection import AgentConnection, Exchanges
from shared.a2a.remote.endpoints import Binding, Endpoint, find_endpoint
from shared.a2a.remote.errors import EndpointMissing
from shared.a2a.remote.exchange import Bounds, RemoteTurn, Stopped, message_id_of
from shared.a2a.remote.following import follow
from shared.a2a.remote.http_json import HttpJson
from shared.a2a.remote.jsonrpc import JsonRpc
from shared.a2a.remote.parts import PartFiles
from shared.a2a.remote.reconciling import LogCopy
from shared.a2a.remote.request_tokens import mint_request_token
from shared.a2a.remote.sending import deliver
from shared.a2a.remote.turn_rows import SentTurns, TurnGone
from shared.a2a.turns.updates import Turn, Update
from shared.database import Database
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.identity.signing_keys import SigningKeys
from shared.identity.usage_attribution import mint_usage_attribution
from shared.settings import Settings

VERSION = "1.0"
CARD_SECONDS = 30.0
"""How long a turn waits for the card of an endpoint that was just set."""
CARD_LOOK_SECONDS = 1.0


class RemoteBehavior:
    """Has each message answered by the deployment's own server."""

    def __init__(self, database: Database, files: StoredFiles, settings: Settings) -> None:
        self._database = database
        self._files = files
        self._settings = settings
        self._rows = SentTurns(database)
        self._keys = SigningKeys(database, settings)
        self._encryption = Encryption(settings)
        self._exchanges = Exchanges(EgressPolicy.of(settings), maximum_bytes=settings.a2a_remote_answer_bytes)
        self._bounds = Bounds(
            retry_seconds=settings.a2a_remote_retry_seconds,
            silence_seconds=settings.a2a_remote_silence_seconds,
            updates_per_second=settings.a2a_remote_updates_per_second,
        )

    def run(self, turn: Turn) -> Iterator[Update]:
        """Have the agent answer; ends without a word when the turn is cancelled or another worker's."""
        try:
            endpoint = self._endpoint(turn)
            remote = self._open(turn, endpoint)
            if remote.remote_task_id is None:
                yield from deliver(remote, endpoint)
            if not remote.is_settled:
                yield from follow(remote, streams=endpoint.streams)
        except (Stopped, TurnGone):
            return

    def _endpoint(self, turn: Turn) -> Endpoint:
        """Find where the agent is; its card is read soon after the endpoint was set."""
        cancellation = TurnCancellation(turn)
        for _ in range(round(CARD_SECONDS / CARD_LOOK_SECONDS)):
            with self._database.autocommit() as session:
                endpoint = find_endpoint(session, turn.deployment_id)
            if endpoint is None:
                break
            if endpoint.binding is not None:
                return endpoint
            if cancellation.wait(CARD_LOOK_SECONDS):
                raise Stopped
        raise EndpointMissing

    def _open(self, turn: Turn, endpoint: Endpoint) -> RemoteTurn:
        sent = self._rows.read(turn)
        files = PartFiles(self._files, turn, inline_limit_bytes=self._settings.a2a_inline_artifact_bytes)
        connection = AgentConnection(
            self._exchanges,
            binding_of(endpoint),
            lambda: self._headers(turn, endpoint),
            is_unwanted=turn.is_cancelled,
            stream_seconds=self._settings.a2a_turn_seconds,
        )
        return RemoteTurn(
            turn,
            sent,
            rows=self._rows,
            connection=connection,
            copy=LogCopy(files, sent.logged, message_id=message_id_of(turn)),
            bounds=self._bounds,
        )

    def _headers(self, turn: Turn, endpoint: Endpoint) -> Mapping[str, str]:
        """Write the headers of a request: whom we are, and on whose behalf the agent is asked."""
        attribution = mint_usage_attribution(self._keys, self._settings, turn.attribution)
        token = mint_request_token(self._keys, self._settings, turn.deployment_id)
        headers = {
            **endpoint.credential_headers(self._encryption),
            "A2A-Version": VERSION,
            "Service-Usage-Attribution": attribution.value,
            "Authorization": f"Bearer {token}",
        }
        if turn.active_extensions:
            headers["A2A-Extensions"] = ",".join(sorted(turn.active_extensions))
        return headers


def binding_of(endpoint: Endpoint) -> AgentBinding:
    """Give the binding that an endpoint is spoken to in. Raises EndpointMissing while its card was not read."""
    if endpoint.interface_url is None:
        raise EndpointMissing
    if endpoint.binding is Binding.JSONRPC:
        return JsonRpc(endpoint.interface_url, endpoint.tenant)
    return HttpJson(endpoint.interface_url, endpoint.tenant)
