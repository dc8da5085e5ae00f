"""Connections to agents' servers, with the headers that say who asks and on whose behalf."""

from collections.abc import Callable, Collection, Mapping

from shared.a2a.remote.bindings import AgentBinding
from shared.a2a.remote.connection import AgentConnection, Exchanges
from shared.a2a.remote.endpoints import Binding, Endpoint
from shared.a2a.remote.errors import EndpointMissing
from shared.a2a.remote.http_json import HttpJson
from shared.a2a.remote.jsonrpc import JsonRpc
from shared.a2a.remote.request_tokens import mint_request_token
from shared.a2a.turns.updates import Turn
from shared.config.settings import Settings
from shared.db.database import Database
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.identity.tokens.signing_keys import SigningKeys
from shared.identity.tokens.usage_attribution import Attribution, mint_usage_attribution

VERSION = "1.0"


def _never() -> bool:
    return False


class AgentConnector:
    """Connects a process to agents' servers; safe to share between threads."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._settings = settings
        self._keys = SigningKeys(database, settings)
        self._encryption = Encryption(settings)
        self._exchanges = Exchanges(EgressPolicy.of(settings), maximum_bytes=settings.a2a_remote_answer_bytes)

    def connect(self, endpoint: Endpoint) -> AgentConnection:
        """Connect for the service itself, on nobody's behalf. Raises EndpointMissing."""
        return self._connect(endpoint, lambda: self._headers(endpoint, None, ()), _never)

    def connect_for(self, endpoint: Endpoint, turn: Turn) -> AgentConnection:
        """Connect for a turn. Raises EndpointMissing."""

        def headers() -> Mapping[str, str]:
            return self._headers(endpoint, turn.attribution, turn.active_extensions)

        return self._connect(endpoint, headers, turn.is_cancelled)

    def _connect(
        self,
        endpoint: Endpoint,
        headers: Callable[[], Mapping[str, str]],
        is_unwanted: Callable[[], bool],
    ) -> AgentConnection:
        return AgentConnection(
            self._exchanges,
            binding_of(endpoint),
            headers,
            is_unwanted=is_unwanted,
            stream_seconds=self._settings.a2a_turn_seconds,
        )

    def _headers(
        self, endpoint: Endpoint, attribution: Attribution | None, extensions: Collection[str]
    ) -> Mapping[str, str]:
        token = mint_request_token(self._keys, self._settings, endpoint.deployment_id)
        headers = {
            **endpoint.credential_headers(self._encryption),
            "A2A-Version": VERSION,
            "Authorization": f"Bearer {token}",
        }
        if attribution is not None:
            minted = mint_usage_attribution(self._keys, self._settings, attribution)
            headers["Service-Usage-Attribution"] = minted.value
        if extensions:
            headers["A2A-Extensions"] = ",".join(sorted(extensions))
        return headers


def binding_of(endpoint: Endpoint) -> AgentBinding:
    """Give the binding that an endpoint is spoken to in. Raises EndpointMissing while its card was not read."""
    if endpoint.interface_url is None:
        raise EndpointMissing
    if endpoint.binding is Binding.JSONRPC:
        return JsonRpc(endpoint.interface_url, endpoint.tenant)
    return HttpJson(endpoint.interface_url, endpoint.tenant)
