"""A model's reply becomes the task's artifact, is paid to the unit, and is never asked for twice."""

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.behaviors import model_backed, stored_files
from shared.a2a.behaviors.stored_files import file_artifact_uri
from shared.a2a.file_links import FileLinks
from shared.a2a.types import Part, Task, TaskState
from shared.credits.sweeps import release_overdue_holds
from shared.db.database import Database
from shared.errors import DomainError
from shared.files.blobs.base import BlobStoreUnavailable, StorageFull, StorageReadOnly
from shared.files.grants import get_granted_content
from shared.files.uploads import upload
from tests.shared.a2a.behaviors.agents import CREDITS, Agents, make_agents
from tests.shared.a2a.behaviors.turns import message
from tests.shared.credits.calls import Calls
from tests.support.models.upstream_scripts import DIRECTIVE, Script
from tests.support.models.upstreams import FakeUpstream
from tests.support.processes.stack import wait_until

CATALOG = """
[providers.scripted]
kind = "scripted"
[providers.upstream]
base_url = "{upstream}"
[[models]]
id = "scripted"
prompt_price = "3"
completion_price = "7"
context_length = 100_000
retries = 0
upstreams = [{{ provider = "scripted", model = "echo" }}]
[[models]]
id = "upstream"
prompt_price = "3"
completion_price = "7"
context_length = 400
max_completion_tokens = 50
retries = 0
upstreams = [{{ provider = "upstream", model = "there" }}]
[[models]]
id = "seeing"
prompt_price = "3"
completion_price = "7"
input_modalities = ["text", "image"]
upstreams = [{{ provider = "upstream", model = "there" }}]
[[models]]
id = "narrow"
prompt_price = "1"
completion_price = "2"
concurrency_limit = 1
upstreams = [{{ provider = "scripted", model = "echo" }}]
"""
LONG = "!tokens 30"  # 30 words, more than the limit of these agents


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeUpstream]:
    with FakeUpstream() as upstream:
        yield upstream


@pytest.fixture
def agents(
    database: Database,
    valkey_server: EmbeddedValkey,
    upstream: FakeUpstream,
    tmp_path: Path,
    brisk: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Agents]:
    """A new organization's agent, which asks the scripted model."""
    monkeypatch.setattr(model_backed, "COALESCING_SECONDS", 0.0)
    catalog = tmp_path / "models.toml"
    catalog.write_text(CATALOG.format(upstream=upstream.base_url))
    with make_agents(
        database, valkey_server.url, tmp_path, models_config=catalog, a2a_inline_artifact_bytes=150
    ) as agents:
        agents.use_model("scripted", "You are terse.")
        yield agents
        assert agents.balance.held == 0
        assert agents.discrepancies() == []


def said(task: Task) -> str | None:
    return None if task.status.message is None else task.status.message.parts[0].text


def text_of(task: Task) -> str:
    return "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts)


def pieces(agents: Agents, task: Task) -> list[dict[str, Any]]:
    return [dict(event["artifactUpdate"]) for event in agents.events(task.id) if "artifactUpdate" in event]


def asked(upstream: FakeUpstream) -> list[dict[str, Any]]:
    """The messages of the last request."""
    messages: list[dict[str, Any]] = upstream.received[-1].body["messages"]
    return messages


def test_a_reply_is_streamed_into_an_artifact(agents: Agents) -> None:
    task = agents.answer("!tokens 5")
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "word0 word1 word2 word3 word4")
    made = pieces(agents, task)
    assert [(piece.get("append"), piece["lastChunk"]) for piece in made] == [
        (False, False),
        *[(True, False)] * 4,
        (True, True),
    ]
    assert made[0]["artifact"]["name"] == "reply"
    assert made[0]["artifact"]["parts"][0]["mediaType"] == "text/plain"


def test_a_turn_is_charged_to_the_unit_and_attributed(agents: Agents) -> None:
    agents.answer("!tokens 5")
    (record,) = agents.usage()
    deployment = agents.deployment.deployment
    # "You are terse." and "!tokens 5": five words in, five out.
    assert (record["status"], record["prompt_tokens"], record["completion_tokens"]) == ("completed", 5, 5)
    assert (record["identity_id"], record["deployment_id"], record["principal_id"], record["user_id"]) == (
        deployment.daemon_identity_id,
        deployment.id,
        None,
        None,
    )
    assert agents.balance.balance == CREDITS - (5 * 3 + 5 * 7)


def attributed(agents: Agents) -> Any:
    """The caller of a message that a distribution routed, and the identity that received it."""
    principal = agents.identity.principal(agents.organization_id)
    deployment = agents.deployment
    distribution = agents.identity.distribution(
        agents.organization_id, principal_id=principal.id, deployment_id=deployment.deployment.id
    )
    authenticator = agents.identity.authenticator()
    credential = authenticator.authenticate(agents.identity.authorization(deployment))
    return authenticator.resolve(credential, agents.identity.attribution(distribution)), principal.id


def test_what_a_routed_message_costs_and_makes_is_the_receiving_identitys(agents: Agents) -> None:
    caller, principal_id = attributed(agents)
    agents.answer(LONG, caller=caller)
    (record,) = agents.usage()
    daemon_id = agents.deployment.deployment.daemon_identity_id
    assert (record["identity_id"], record["principal_id"]) == (daemon_id, principal_id)
    (file,) = agents.files()
    assert (file["owner_kind"], file["owner_id"], file["payer_id"]) == (
        "PrincipalIdentity",
        principal_id,
        agents.organization_id,
    )


def test_a_long_reply_becomes_a_file_with_a_link(agents: Agents) -> None:
    uri = file_artifact_uri(agents.settings.base_url)
    task = agents.answer(LONG, extensions=(uri,))
    assert task.status.state is TaskState.COMPLETED
    (artifact,) = task.artifacts
    (part,) = artifact.parts
    (file,) = agents.files()
    whole = " ".join(f"word{number}" for number in range(30)).encode()
    description = (artifact.metadata or {})[uri]
    assert artifact.extensions == (uri,)
    assert (description["id"], description["versionId"]) == (
        str(file["id"]),
        str(file["current_version_id"]),
    )
    assert description["contentSha256"] == hashlib.sha256(whole).hexdigest()
    assert (file["purpose"], file["owner_kind"], str(file["owner_id"])) == (
        "AgentArtifact",
        "DaemonIdentity",
        str(agents.deployment.deployment.daemon_identity_id),
    )
    assert agents.rows(
        "SELECT kind, reference_id FROM file_references WHERE file_id = :id", id=file["id"]
    ) == [{"kind": "Task", "reference_id": task.id}]
    last = pieces(agents, task)[-1]
    assert (last["append"], last["lastChunk"]) == (False, True)
    assert "grant=" not in json.dumps(agents.events(task.id))
    (linked,) = FileLinks(agents.database, agents.settings).with_links(UUID(task.id), [artifact.to_wire()])
    assert content_behind(agents, linked["parts"][0]["url"]) == whole
    assert (part.filename, part.media_type) == ("reply.txt", "text/plain")


def content_behind(agents: Agents, link: str) -> bytes:
    """What a link opens."""
    found = agents.behaviors.by_kind["model"]._linked.read(link)  # type: ignore[index, attr-defined]
    assert found is not None
    return bytes(found[1])


def test_a_file_is_described_only_where_the_extension_is_active(agents: Agents) -> None:
    (artifact,) = agents.answer(LONG).artifacts
    assert (artifact.metadata, artifact.extensions) == (None, ())


def test_links_are_given_for_files_of_the_task_alone(agents: Agents) -> None:
    task, other = agents.answer(LONG), agents.answer("!tokens 1")
    links = FileLinks(agents.database, agents.settings)
    wire = task.artifacts[0].to_wire()
    assert links.with_links(UUID(other.id), wire) == wire
    linked = links.with_links(UUID(task.id), {"task": {"artifacts": [wire]}})["task"]["artifacts"][0]
    assert linked["parts"][0]["url"] != wire["parts"][0]["url"]
    assert links.with_links(UUID(task.id), wire) == linked
    written = {"parts": [{"data": wire}], "metadata": {"parts": [{"url": wire["parts"][0]["url"]}]}}
    assert links.with_links(UUID(task.id), written) == written
    agents.set(
        "UPDATE files SET state = 'Expired', ended_at = now() WHERE organization_id = :id",
        id=agents.organization_id,
    )
    assert links.with_links(UUID(task.id), wire) == wire


def test_a_link_that_was_revoked_is_replaced_by_another(agents: Agents) -> None:
    task = agents.answer(LONG)
    links, wire = FileLinks(agents.database, agents.settings), task.artifacts[0].to_wire()
    before = links.with_links(UUID(task.id), wire)["parts"][0]["url"]
    agents.set(
        "UPDATE read_grants SET revoked_at = now()"
        " WHERE file_id IN (SELECT id FROM files WHERE organization_id = :id)",
        id=agents.organization_id,
    )
    after = links.with_links(UUID(task.id), wire)["parts"][0]["url"]
    assert after not in (before, wire["parts"][0]["url"])
    assert links.with_links(UUID(task.id), wire)["parts"][0]["url"] == after


def test_a_link_ends_within_a_day(agents: Agents) -> None:
    task = agents.answer(LONG)
    linked = FileLinks(agents.database, agents.settings).with_links(
        UUID(task.id), task.artifacts[0].to_wire()
    )
    token = linked["parts"][0]["url"].partition("grant=")[2]
    with agents.database.autocommit() as session:
        get_granted_content(session, agents.files()[0]["id"], token)
    (grant,) = agents.rows(
        "SELECT access_expires_at - now() BETWEEN interval '11 hours' AND interval '24 hours' AS is_right"
        " FROM read_grants WHERE file_id = :id",
        id=agents.files()[0]["id"],
    )
    assert grant["is_right"]


def test_file_with_extended_retention_gets_a_longer_link(agents: Agents) -> None:
    task = agents.answer(LONG)
    (file,) = agents.files()
    links, wire = FileLinks(agents.database, agents.settings), task.artifacts[0].to_wire()

    def link_while_kept(lifetime: str) -> str:
        agents.set(
            "UPDATE files SET retention_expires_at = now() + CAST(:lifetime AS interval) WHERE id = :id",
            lifetime=lifetime,
            id=file["id"],
        )
        link: str = links.with_links(UUID(task.id), wire)["parts"][0]["url"]
        assert links.with_links(UUID(task.id), wire)["parts"][0]["url"] == link
        return link

    assert len({link_while_kept(lifetime) for lifetime in ("1 hour", "2 hours", "100 days", "3 hours")}) == 4
    ends = agents.rows(
        "SELECT round(extract(epoch FROM access_expires_at - now()) / 3600) AS hours FROM read_grants"
        " WHERE file_id = :id ORDER BY access_expires_at",
        id=file["id"],
    )
    assert [int(end["hours"]) for end in ends[:3]] == [1, 2, 3]
    assert [12 <= end["hours"] <= 24 for end in ends[3:]] == [True]


@pytest.mark.parametrize("failure", [BlobStoreUnavailable, StorageFull, StorageReadOnly])
def test_a_store_that_takes_nothing_for_a_moment_loses_nothing(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, failure: type[DomainError]
) -> None:
    tries = iter([True, True, False])

    def upload_at_last(*arguments: Any) -> Any:
        if next(tries):
            raise failure
        return upload(*arguments)

    monkeypatch.setattr(stored_files, "upload", upload_at_last)
    assert agents.answer(LONG).status.state is TaskState.COMPLETED
    assert len(agents.files()) == 1


def test_json_is_a_data_part_kept_to_the_digit(agents: Agents) -> None:
    task = agents.answer('!json {"n": 9007199254740993, "d": 1.10}', accepted=("application/json",))
    (part,) = task.artifacts[0].parts
    assert (part.to_wire(), getattr(part.data["d"], "text", None)) == (
        {"data": {"n": 9007199254740993, "d": 1.1}, "mediaType": "application/json"},
        "1.10",
    )


def test_a_reply_that_should_be_json_and_is_not_fails(agents: Agents) -> None:
    task = agents.answer("!say no", accepted=("application/json",))
    assert task.status.state is TaskState.FAILED
    assert "JSON" in (said(task) or "")
    assert agents.usage()[0]["status"] == "completed"


def test_the_form_is_the_first_that_the_client_takes(agents: Agents) -> None:
    task = agents.answer("!say **no**", accepted=("image/png", "text/markdown", "text/plain"))
    assert task.artifacts[0].parts[0].media_type == "text/markdown"


@pytest.mark.parametrize(
    ("reply", "state", "words"),
    [
        ("!refuse I will not", TaskState.REJECTED, "I will not"),
        ("!tokens 3\n!length", TaskState.FAILED, "longest"),
        ("!break", TaskState.FAILED, "break off"),
        ("!tokens 3\n!end after 1", TaskState.FAILED, "ended the stream"),
        ("!tokens 3\n!fail 500 after 1", TaskState.FAILED, ""),
        ("!fail 400", TaskState.FAILED, "The script says to fail."),
        ("!fail 503", TaskState.FAILED, "no capacity"),
    ],
)
def test_a_reply_that_is_none_says_why(agents: Agents, reply: str, state: TaskState, words: str) -> None:
    task = agents.answer(reply)
    assert task.status.state is state
    assert words in (said(task) or "")


def test_too_few_credits_fail_the_task_before_anything_is_asked(agents: Agents) -> None:
    agents.set(
        "UPDATE credit_balances SET policy = 'suspended' WHERE organization_id = :id",
        id=agents.organization_id,
    )
    task = agents.answer("!tokens 3")
    assert (task.status.state, "is suspended" in (said(task) or "")) == (TaskState.FAILED, True)
    assert agents.usage() == []


def test_a_model_that_is_gone_fails_the_task(agents: Agents) -> None:
    agents.use_model("nothing/like-it")
    task = agents.answer("hello")
    assert (task.status.state, "no such model" in (said(task) or "")) == (TaskState.FAILED, True)


def test_a_daemon_without_permission_asks_no_model(agents: Agents) -> None:
    agents.set(
        "DELETE FROM role_bindings WHERE subject_identity_id = :id",
        id=agents.deployment.deployment.daemon_identity_id,
    )
    task = agents.answer("hello")
    assert (task.status.state, "model.execute" in (said(task) or "")) == (TaskState.FAILED, True)
    assert agents.usage() == []


def test_a_cancelled_turn_is_charged_for_what_was_said(agents: Agents) -> None:
    sent = agents.say("!tokens 1000\n!delay 20")
    with agents.answering(sent):
        wait_until(lambda: len(pieces(agents, agents.task(sent.task_id))) > 2, "a few words")
        agents.cancel(sent.task_id)
    (record,) = agents.usage()
    assert (record["status"], record["is_estimated"]) == ("cancelled", True)
    assert 0 < record["completion_tokens"] < 1000
    assert agents.task(sent.task_id).status.state is TaskState.CANCELED


def test_a_model_as_busy_as_it_may_be_is_waited_for(agents: Agents) -> None:
    agents.use_model("narrow")
    first = agents.say("!tokens 1000\n!delay 20")
    second = agents.say("!tokens 2")
    with agents.answering(first):
        wait_until(lambda: bool(pieces(agents, agents.task(first.task_id))), "the first call")
        with agents.answering(second):
            wait_until(lambda: agents.turn(second.turn_id)["state"] == "running", "the second turn")
            assert agents.rows(
                "SELECT count(*) AS n FROM invocations WHERE organization_id = :id", id=agents.organization_id
            ) == [{"n": 1}]
            agents.cancel(first.task_id)
    assert agents.task(second.task_id).status.state is TaskState.COMPLETED


def test_a_call_that_was_made_is_not_made_again(agents: Agents) -> None:
    sent = agents.say("!tokens 3")
    claimed = agents.log.claim(sent.turn_id)
    assert claimed is not None
    list(agents.behaviors.by_kind[claimed.turn.behavior.kind].run(claimed.turn))
    agents.log.hand_back(claimed)
    agents.execution.answer_turn(sent.turn_id)
    task = agents.task(sent.task_id)
    assert (task.status.state, "final" in (said(task) or "")) == (TaskState.FAILED, True)
    assert len(agents.usage()) == 1


@pytest.mark.parametrize("is_released", [False, True])
def test_held_call_is_made_at_the_current_price_after_a_change(agents: Agents, is_released: bool) -> None:
    sent = agents.say("!tokens 3")
    Calls(agents.database, agents.organization_id).hold(5, invocation_id=uuid5(sent.turn_id, "invocation"))
    if is_released:
        agents.set("UPDATE invocations SET lease_until = now() - interval '1 second'")
        release_overdue_holds(agents.database)
    agents.execution.answer_turn(sent.turn_id)
    assert agents.task(sent.task_id).status.state is TaskState.COMPLETED
    assert [row["completion_tokens"] for row in agents.usage()] == [3]


def test_a_call_that_was_begun_at_another_price_is_not_made_again(agents: Agents) -> None:
    calls = Calls(agents.database, agents.organization_id)
    sent = agents.say("!tokens 3")
    begun = calls.dispatched(5, invocation_id=uuid5(sent.turn_id, "invocation"))
    agents.execution.answer_turn(sent.turn_id)
    task = agents.task(sent.task_id)
    assert (task.status.state, "final" in (said(task) or "")) == (TaskState.FAILED, True)
    calls.settle(*begun, 5)
    assert len(agents.usage()) == 1


def test_what_was_said_before_is_recalled_as_far_as_it_fits(agents: Agents, upstream: FakeUpstream) -> None:
    agents.use_model("upstream", "Be kind.")
    for said_before in ("x" * 1200, "one", "two"):
        task = agents.answer(said_before, context_id="c")
        assert task.status.state is TaskState.COMPLETED
    agents.answer("three", context_id="c")
    reply = {"role": "assistant", "content": "token token token "}
    assert asked(upstream) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "one"},
        reply,
        {"role": "user", "content": "two"},
        reply,
        {"role": "user", "content": "three"},
    ]
    too_long = agents.answer("x" * 2000)
    assert (too_long.status.state, "exceeds the context length" in (said(too_long) or "")) == (
        TaskState.FAILED,
        True,
    )


def test_parts_are_read_as_far_as_the_model_can(agents: Agents, upstream: FakeUpstream) -> None:
    agents.use_model("seeing")
    pixel = base64.b64encode(b"pixel").decode()
    parts = (
        Part(text="Look"),
        Part.model_validate({"data": {"n": 9007199254740993}}),
        Part(raw=b"a,b", media_type="text/csv", filename="a.csv"),
        Part(raw=b"pixel", media_type="image/png"),
        Part(url="https://example.com/cat.png", media_type="image/png"),
        Part(url="https://example.com/plan", filename="plan.pdf"),
    )
    agents.answer(message(parts=parts))
    assert asked(upstream)[-1]["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "text", "text": '{"n":9007199254740993}'},
        {"type": "text", "text": "a.csv:"},
        {"type": "text", "text": "a,b"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixel}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
        {"type": "text", "text": "[plan.pdf: https://example.com/plan]"},
    ]
    unreadable = agents.answer(message(parts=(Part(raw=b"%PDF", media_type="application/pdf"),)))
    assert (unreadable.status.state, "application/pdf" in (said(unreadable) or "")) == (
        TaskState.FAILED,
        True,
    )
    agents.use_model("scripted")
    picture = agents.answer(message(parts=(Part(raw=b"pixel", media_type="image/png"),)))
    assert (picture.status.state, "image/png" in (said(picture) or "")) == (TaskState.FAILED, True)


def test_a_link_to_one_of_our_files_is_read_for_the_model(agents: Agents, upstream: FakeUpstream) -> None:
    task = agents.answer(LONG)
    wire = task.artifacts[0].to_wire()
    link = FileLinks(agents.database, agents.settings).with_links(UUID(task.id), wire)["parts"][0]["url"]
    agents.use_model("upstream")
    agents.answer(message(parts=(Part(text="Read this"), Part(url=link))))
    assert "word29" in asked(upstream)[-1]["content"]
    broken = agents.answer(message(parts=(Part(url=link[:-1]),)))
    assert (broken.status.state, "could not be read" in (said(broken) or "")) == (TaskState.FAILED, True)


def test_what_the_upstream_reports_is_charged(agents: Agents, upstream: FakeUpstream) -> None:
    agents.use_model("upstream")
    script = json.dumps({"chunks": 4, "prompt_tokens": 12})
    task = agents.answer(f"Go\n{DIRECTIVE}{script}")
    assert text_of(task) == "token " * 4
    (record,) = agents.usage()
    assert (record["prompt_tokens"], record["completion_tokens"], record["is_estimated"]) == (12, 4, False)
    assert agents.balance.balance == CREDITS - (12 * 3 + 4 * 7)
    assert upstream.served[-1].is_reported


def test_a_character_that_comes_in_halves_is_put_together(agents: Agents, upstream: FakeUpstream) -> None:
    agents.use_model("upstream")
    chunks = "".join(
        f'data: {{"choices": [{{"index": 0, "delta": {{"content": "{half}"}}}}]}}\n\n'
        for half in ("a\\ud83d", "\\ude00b", "\\ud83d")
    )
    finish = 'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    upstream.scripts.append(Script(raw=head + chunks + finish))
    task = agents.answer("hello")
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "a\U0001f600b\ufffd")
