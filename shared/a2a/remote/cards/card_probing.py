"""Probe an agent's server: ask it for the tasks of a context that does not exist.

This changes nothing at the agent and still needs every credential. An agent that lists its tasks can be asked whether a
message arrived whose answer was lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from shared.a2a.exact_json import parse, render
from shared.a2a.remote.cards.agent_cards import REFUSED, VERSION, Interface, host_of
from shared.a2a.remote.cards.card_documents import Fault, Finding
from shared.a2a.remote.endpoints import Binding
from shared.egress.errors import EgressError, SourceAnswered
from shared.egress.fetching import ask
from shared.egress.policy import EgressPolicy

DEADLINE_SECONDS = 10.0
IDLE_SECONDS = 5.0
_SERVER_FAILED = 500
_NOT_IMPLEMENTED = 501
_VERSION_NOT_SUPPORTED = -32009


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a server answered: a problem with it, or a warning, and whether it lists tasks (None: nobody knows)."""

    has_list_tasks: bool | None = None
    problem: Finding | None = None
    warning: Finding | None = None


def probe(interface: Interface, headers: Mapping[str, str], policy: EgressPolicy) -> Probe:
    """Ask for tasks, with the headers that every message has."""
    ask_for = _http_json if interface.binding is Binding.HTTP_JSON else _jsonrpc
    address, body = ask_for(interface, str(uuid4()))
    sent = {"A2A-Version": VERSION, "Accept": "application/json", **headers}
    if body is not None:
        sent["Content-Type"] = "application/json"
    try:
        answer = ask(
            address,
            sent,
            policy=policy,
            method="GET" if body is None else "POST",
            body=body,
            deadline_seconds=DEADLINE_SECONDS,
            idle_seconds=IDLE_SECONDS,
        )
    except SourceAnswered as answered:
        return _judge_status(answered.status)
    except EgressError as error:
        message = f"{host_of(interface.url)} cannot be asked at the address for messages: {error.detail}"
        return Probe(problem=Finding(code=Fault.UNREACHABLE, message=message))
    return _judge_answer(interface.binding, answer)


def _http_json(interface: Interface, context_id: str) -> tuple[str, bytes | None]:
    tenant = f"/{quote(interface.tenant, safe='')}" if interface.tenant else ""
    return f"{interface.url}{tenant}/tasks?contextId={context_id}&pageSize=1", None


def _jsonrpc(interface: Interface, context_id: str) -> tuple[str, bytes | None]:
    params: dict[str, Any] = {"contextId": context_id, "pageSize": 1}
    if interface.tenant:
        params["tenant"] = interface.tenant
    call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}
    return interface.url, render(call).encode()


def _judge_status(status: int) -> Probe:
    if status in REFUSED:
        message = (
            f"The agent's server refuses our requests with status {status}: it takes neither the request token"
            " (Authorization) nor the endpoint's credential."
        )
        return Probe(problem=Finding(code=Fault.CREDENTIAL_REFUSED, message=message))
    if status >= _SERVER_FAILED and status != _NOT_IMPLEMENTED:
        message = f"The agent's server answers with status {status} when it is asked for tasks."
        return Probe(problem=Finding(code=Fault.INTERFACE_FAILED, message=message))
    return _without_list(f"It answers with status {status}.")


def _judge_answer(binding: Binding, answer: bytes) -> Probe:
    try:
        read = parse(answer)
    except (ValueError, RecursionError):
        read = None
    error = read.get("error") if isinstance(read, dict) else None
    if not isinstance(read, dict) or (binding is Binding.JSONRPC and not {"result", "error"} & read.keys()):
        message = "The address for messages answers with something else than the protocol's JSON."
        return Probe(problem=Finding(code=Fault.INTERFACE_FAILED, message=message))
    if binding is Binding.HTTP_JSON or error is None:
        return Probe(has_list_tasks=True)
    code = error.get("code") if isinstance(error, dict) else None
    if code == _VERSION_NOT_SUPPORTED:
        message = f"The agent's server refuses version {VERSION} of the protocol, which its card offers."
        return Probe(problem=Finding(code=Fault.NO_INTERFACE, message=message))
    return _without_list(
        f"It answers with error {code}." if isinstance(code, int) else "It answers with an error."
    )


def _without_list(why: str) -> Probe:
    message = (
        "The agent does not list its tasks, so that a message whose answer is lost fails unless it may be sent again"
        f" (resends). {why}"
    )
    return Probe(has_list_tasks=False, warning=Finding(code=Fault.NO_TASK_LIST, message=message))
