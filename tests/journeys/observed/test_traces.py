"""One trace spans client, web process, broker, worker, provider and egress, and contains no secret."""

import secrets
from collections.abc import Collection
from uuid import uuid4

import requests

from tests.journeys.observed.conftest import Observed
from tests.support.agents.rest_clients import TIMEOUT_SECONDS
from tests.support.processes.stack import TookTooLong, wait_until
from tests.support.servers.trace_collector import SpanSeen

CANARY = "canary-3f9c1d"


class Traced:
    """A client that is traced itself."""

    def __init__(self, observed: Observed, *, is_sampled: bool = True) -> None:
        self._observed = observed
        self.trace_id, self.span_id = secrets.token_hex(16), secrets.token_hex(8)
        self.header = {"traceparent": f"00-{self.trace_id}-{self.span_id}-0{int(is_sampled)}"}

    def spans(self, wanted: Collection[str]) -> dict[str, SpanSeen]:
        """Wait for these spans, and return the trace by role and name; each span has a parent in the trace."""
        found: dict[str, SpanSeen] = {}

        def have_come() -> bool:
            spans = self._observed.collector.trace(self.trace_id)
            found.update({f"{span.role}: {span.name}": span for span in spans})
            known = {self.span_id, *(span.span_id for span in spans)}
            return set(wanted) <= found.keys() and all(span.parent_id in known for span in spans)

        wait_until(have_come, f"{wanted} come; see {self._observed.stack.directory}")
        return found

    def is_logged_by(self, name: str) -> bool:
        """Return whether a process has a log line with the trace's id."""
        logs = self._observed.stack.directory.glob(f"*-{name}*.log")
        return any(f'"trace_id": "{self.trace_id}"' in log.read_text() for log in logs)


def complete(observed: Observed, prompt: str, **headers: str) -> requests.Response:
    said = {"model": "scripted/echo", "messages": [{"role": "user", "content": prompt}]}
    return observed.house.owner.request("POST", "/v1/chat/completions", json=said, headers=headers)


def test_model_call_is_one_trace_from_client_to_provider(observed: Observed) -> None:
    client = Traced(observed)
    assert complete(observed, f"Say {CANARY}", **client.header).status_code == 200
    request, call, attempt = (
        "web: POST /v1/chat/completions",
        "worker-models: models.invoke",
        "worker-models: provider attempt",
    )
    spans = client.spans((request, call, attempt))
    assert spans[request].parent_id == client.span_id
    assert spans[call].parent_id == spans[request].span_id
    assert spans[attempt].parent_id == spans[call].span_id
    assert spans[attempt].attributes == {
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted/echo",
    }
    assert spans[request].attributes["http.response.status_code"] == "200"
    assert client.is_logged_by("web")


def upload(observed: Observed) -> Traced:
    """Upload a file, and return the trace that contains its placement."""
    client = Traced(observed)
    uploaded = observed.house.agent.request(
        "POST",
        "/files/agent-artifacts",
        params={"operationId": str(uuid4()), "byteSize": str(len(CANARY))},
        files={"file": (f"{CANARY}.txt", CANARY.encode(), "text/plain")},
        headers=client.header,
    )
    assert uploaded.status_code == 201
    request, job = "web: POST /files/agent-artifacts", "worker-files: files.place_staged"
    spans = client.spans((request, job))
    assert (spans[request].parent_id, spans[job].parent_id) == (client.span_id, spans[request].span_id)
    return client


def test_upload_and_placement_are_one_trace(observed: Observed) -> None:
    def is_logged() -> bool:
        client = upload(observed)
        try:
            wait_until(lambda: client.is_logged_by("worker-files"), "the worker's lines have it", seconds=5)
        except TookTooLong:
            return False  # Beat's sweep had placed the file already, and a job without work has no span.
        return True

    wait_until(is_logged, "the worker's lines have the trace")


def test_message_agent_and_its_requests_share_one_trace(observed: Observed) -> None:
    client, house = Traced(observed), observed.house
    message = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": f"What is {CANARY}?"}]}
    path = f"/agents/{house.deployment_id}/message:send"
    headers = {**client.header, "A2A-Version": "1.0"}
    sent = house.owner.request("POST", path, json={"message": message}, headers=headers)
    assert sent.status_code == 200, sent.text
    turn, egress = "worker-agents: agents.answer_turn", "worker-agents: egress agent"
    spans = client.spans((turn, egress))
    request = next(span for name, span in spans.items() if name.startswith("web: POST /agents/"))
    assert request.parent_id == client.span_id
    assert spans[turn].parent_id == request.span_id
    assert spans[egress].parent_id == spans[turn].span_id
    assert spans[egress].attributes["server.address"] == "127.0.0.1"


def test_failed_span_has_the_error_code(observed: Observed) -> None:
    client = Traced(observed)
    assert complete(observed, "!fail 500", **client.header).status_code == 502
    spans = client.spans(("worker-models: provider attempt", "web: POST /v1/chat/completions"))
    assert spans["web: POST /v1/chat/completions"].attributes["error.type"] == "502"


def test_unsampled_client_is_not_traced(observed: Observed) -> None:
    silent, client = Traced(observed, is_sampled=False), Traced(observed)
    for one in (silent, client):
        assert complete(observed, "Hello", **one.header).status_code == 200
    client.spans(("web: POST /v1/chat/completions", "worker-models: provider attempt"))
    assert observed.collector.trace(silent.trace_id) == []
    assert silent.is_logged_by("web")


def test_no_span_contains_a_prompt_key_file_name_or_credential(observed: Observed) -> None:
    client, house = Traced(observed), observed.house
    complete(observed, CANARY, **client.header)
    file = house.agent.upload(CANARY.encode(), operation=uuid4()).json()
    grant = house.agent.grant(file["id"], file["versionId"]).json()
    assert requests.get(grant["url"], headers=client.header, timeout=TIMEOUT_SECONDS).status_code == 200
    requests.get(f"{house.url}/{CANARY}?q={CANARY}", headers=client.header, timeout=TIMEOUT_SECONDS)
    client.spans(("web: GET none", "web: GET /files/<id:file_id>/content"))
    received = observed.collector.received
    secret = (CANARY, house.owner.token, house.agent.token, grant["url"].partition("grant=")[2], file["id"])
    assert [text for text in secret if text.encode() in received] == []
    assert b"@127.0.0.1" not in received
