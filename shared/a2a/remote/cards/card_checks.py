"""Check an endpoint while its administrator waits: read the card, ask the server once, and say what is wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from shared.a2a.remote.cards.agent_cards import CardReader, FoundCard
from shared.a2a.remote.cards.card_documents import CardUnusable, Finding
from shared.a2a.remote.cards.card_probing import Probe, probe
from shared.a2a.remote.cards.card_records import record_card, record_problem
from shared.a2a.remote.endpoints import Endpoint, ShownEndpoint, find_endpoint, get_endpoint
from shared.a2a.remote.request_tokens import mint_request_token
from shared.config.settings import Settings
from shared.db.database import Database
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.identity.access.authorization import Actor
from shared.identity.errors import ResourceNotFound
from shared.identity.tokens.signing_keys import SigningKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointReport:
    """What a check found: problems keep messages from the agent, warnings do not."""

    is_usable: bool
    problems: Sequence[Finding]
    warnings: Sequence[Finding]
    card_address: str | None
    endpoint: ShownEndpoint


def check_endpoint(
    database: Database, keys: SigningKeys, settings: Settings, *, actor: Actor, deployment_id: UUID
) -> EndpointReport:
    """Check the endpoint of a deployment, and keep what its card says. Raises ResourceNotFound when there is none."""
    with database.transaction() as session:
        get_endpoint(session, actor=actor, deployment_id=deployment_id)
        endpoint = find_endpoint(session, deployment_id)
    if endpoint is None:
        raise ResourceNotFound
    problems: list[Finding] = []
    found: FoundCard | None = None
    probed = Probe()
    try:
        found = CardReader(EgressPolicy.of(settings), Encryption(settings)).read(endpoint)
    except CardUnusable as unusable:
        problems.append(unusable.finding)
    if found is not None:
        probed = _probe(endpoint, found, keys, settings)
        problems += [probed.problem] if probed.problem else []
    with database.transaction() as session:
        if found is not None:
            record_card(
                session, endpoint, found, problem=probed.problem, has_list_tasks=probed.has_list_tasks
            )
        else:
            record_problem(session, endpoint, problems[0])
        shown = get_endpoint(session, actor=actor, deployment_id=deployment_id)
    warnings = [*(found.remote.warnings if found else ()), *([probed.warning] if probed.warning else [])]
    return EndpointReport(
        is_usable=not problems,
        problems=problems,
        warnings=warnings,
        card_address=found.address if found else None,
        endpoint=shown,
    )


def _probe(endpoint: Endpoint, found: FoundCard, keys: SigningKeys, settings: Settings) -> Probe:
    token = mint_request_token(keys, settings, endpoint.deployment_id)
    headers = {
        "Authorization": f"Bearer {token}",
        **endpoint.credential_headers(Encryption(settings)),
    }
    return probe(found.interface, headers, EgressPolicy.of(settings))
