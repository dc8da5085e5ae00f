"""Check an endpoint while its administrator waits: read the card, send the server one request, report problems.

The request lists the tasks of a context that does not exist, so it changes nothing at the agent. It shows whether the
agent accepts the credentials. It also shows whether the agent can list its tasks: the service needs this list to find a
message whose response was lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

from shared.a2a.agents.card_documents import CardUnusable, Fault, Finding
from shared.a2a.exact_json import parse, render
from shared.a2a.remote.cards.card_reader import REFUSED, VERSION, CardReader, FoundCard, Interface, host_of
from shared.a2a.remote.cards.card_refresh import record_card, record_problem
from shared.a2a.remote.endpoints import Binding, Endpoint, ShownEndpoint, find_endpoint, get_endpoint
from shared.a2a.remote.request_tokens import mint_request_token
from shared.config.settings import Settings
from shared.db.database import Database
from shared.egress.errors import EgressError, SourceStatusError
from shared.egress.fetch import ask
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.identity.access.authorization import Actor
from shared.identity.errors import ResourceNotFound
from shared.identity.tokens.signing_keys import SigningKeys

DEADLINE_SECONDS = 10.0
IDLE_SECONDS = 5.0
_SERVER_FAILED = 500
_NOT_IMPLEMENTED = 501
_VERSION_NOT_SUPPORTED = -32009


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The result of the request: a problem or a warning, and whether the server lists tasks (None if unknown)."""

    has_list_tasks: bool | None = None
    problem: Finding | None = None
    warning: Finding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointReport:
    """The result of a check. A problem prevents messages to the agent, and a warning does not."""

    is_usable: bool
    problems: Sequence[Finding]
    warnings: Sequence[Finding]
    card_address: str | None
    endpoint: ShownEndpoint


def check_endpoint(
    database: Database, keys: SigningKeys, settings: Settings, *, actor: Actor, deployment_id: UUID
) -> EndpointReport:
    """Check the endpoint of a deployment, and store its card. Raises ResourceNotFound if it has none."""
    with database.transaction() as session:
        get_endpoint(session, actor=actor, deployment_id=deployment_id)
        endpoint = find_endpoint(session, deployment_id)
    if endpoint is None:
        raise ResourceNotFound
    # Send the requests outside of a transaction, so that no database connection waits for the agent's server.
    problems: list[Finding] = []
    found: FoundCard | None = None
    probed = Probe()
    try:
        found = CardReader(EgressPolicy.of(settings), Encryption(settings)).read(endpoint)
    except CardUnusable as unusable:
        problems.append(unusable.finding)
    if found is not None:
        probed = _probe_endpoint(endpoint, found, keys, settings)
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


def _probe_endpoint(endpoint: Endpoint, found: FoundCard, keys: SigningKeys, settings: Settings) -> Probe:
    token = mint_request_token(keys, settings, endpoint.deployment_id)
    headers = {
        "Authorization": f"Bearer {token}",
        **endpoint.credential_headers(Encryption(settings)),
    }
    return _probe_interface(found.interface, headers, EgressPolicy.of(settings))


def _probe_interface(interface: Interface, headers: Mapping[str, str], policy: EgressPolicy) -> Probe:
    """Request the tasks of an unknown context, with the same headers as for messages."""
    ask_for = _http_json if interface.binding is Binding.HTTP_JSON else _jsonrpc
    # Use a random context id, so that the result is empty and lists no task of a caller.
    address, body = ask_for(interface, str(uuid4()))
    sent = {"A2A-Version": VERSION, "Accept": "application/json", **headers}
    if body is not None:
        sent["Content-Type"] = "application/json"
    try:
        response = ask(
            address,
            sent,
            policy=policy,
            method="GET" if body is None else "POST",
            body=body,
            deadline_seconds=DEADLINE_SECONDS,
            idle_seconds=IDLE_SECONDS,
        )
    except SourceStatusError as answered:
        return _check_status(answered.status)
    except EgressError as error:
        message = f"The address for messages at {host_of(interface.url)} cannot be reached: {error.detail}"
        return Probe(problem=Finding(code=Fault.UNREACHABLE, message=message))
    return _check_response(interface.binding, response)


def _http_json(interface: Interface, context_id: str) -> tuple[str, bytes | None]:
    tenant = f"/{quote(interface.tenant, safe='')}" if interface.tenant else ""
    return f"{interface.url}{tenant}/tasks?contextId={context_id}&pageSize=1", None


def _jsonrpc(interface: Interface, context_id: str) -> tuple[str, bytes | None]:
    params: dict[str, Any] = {"contextId": context_id, "pageSize": 1}
    if interface.tenant:
        params["tenant"] = interface.tenant
    call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}
    return interface.url, render(call).encode()


def _check_status(status: int) -> Probe:
    if status in REFUSED:
        message = (
            f"The agent's server refuses requests with status {status}: it accepts neither the request token"
            " (Authorization) nor the endpoint's credential."
        )
        return Probe(problem=Finding(code=Fault.CREDENTIAL_REFUSED, message=message))
    # After 501 or a client error (4xx) the server works but does not list tasks, so report a warning only.
    if status >= _SERVER_FAILED and status != _NOT_IMPLEMENTED:
        message = f"The agent's server returned status {status} to a request for tasks."
        return Probe(problem=Finding(code=Fault.INTERFACE_FAILED, message=message))
    return _without_list(f"It returned status {status}.")


def _check_response(binding: Binding, response: bytes) -> Probe:
    try:
        read = parse(response)
    except (ValueError, RecursionError):
        read = None
    error = read.get("error") if isinstance(read, dict) else None
    if not isinstance(read, dict) or (binding is Binding.JSONRPC and not {"result", "error"} & read.keys()):
        message = "The address for messages did not return JSON of the protocol."
        return Probe(problem=Finding(code=Fault.INTERFACE_FAILED, message=message))
    if binding is Binding.HTTP_JSON or error is None:
        return Probe(has_list_tasks=True)
    code = error.get("code") if isinstance(error, dict) else None
    if code == _VERSION_NOT_SUPPORTED:
        message = f"The agent's server refuses version {VERSION} of the protocol, which its card offers."
        return Probe(problem=Finding(code=Fault.NO_INTERFACE, message=message))
    return _without_list(f"It returned error {code}." if isinstance(code, int) else "It returned an error.")


def _without_list(why: str) -> Probe:
    message = (
        "The agent does not list its tasks, so a message fails if its response is lost, unless it may be sent again"
        f" (resends). {why}"
    )
    return Probe(has_list_tasks=False, warning=Finding(code=Fault.NO_TASK_LIST, message=message))
