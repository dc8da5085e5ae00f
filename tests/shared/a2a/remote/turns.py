"""Endpoints for tests, and what became of the messages that were sent to them."""

from typing import Any
from uuid import UUID

from shared.a2a.remote.endpoints import EndpointDraft, put_endpoint
from shared.a2a.types import Task, TaskState
from shared.identity.access.authorization import OPERATOR
from tests.shared.a2a.behaviors.agents import Agents
from tests.support.processes.stack import wait_until


def use_endpoint(
    agents: Agents, url: str, *, binding: str = "http+json", streams: bool = True, resends: bool = False
) -> None:
    """Let a server answer from now on, as if its card had been read."""
    deployment_id = agents.deployment.deployment.id
    with agents.database.transaction() as session:
        put_endpoint(
            session,
            agents.settings,
            actor=OPERATOR,
            deployment_id=deployment_id,
            draft=EndpointDraft(url=url, resends=resends),
        )
    agents.set(
        "UPDATE deployment_endpoints SET binding = :binding, interface_url = :interface,"
        " streams = CAST(:streams AS boolean) WHERE deployment_id = :id",
        binding=binding,
        interface=f"{url}/rpc" if binding == "jsonrpc" else url,
        streams=streams,
        id=deployment_id,
    )


def wait_until_working(agents: Agents, task_id: UUID) -> None:
    wait_until(lambda: agents.task(task_id).status.state is TaskState.WORKING, "the first update")


def text_of(task: Task, artifact_id: str) -> str:
    """The text of an artifact."""
    found = [artifact for artifact in task.artifacts if artifact.artifact_id == artifact_id]
    return "".join(part.text or "" for artifact in found for part in artifact.parts)


def said(task: Task) -> str:
    """What the task's status says."""
    return "" if task.status.message is None else task.status.message.parts[0].text or ""


def outline(agents: Agents, task: Task) -> list[str]:
    """What each event says, in a word."""
    return [_word(event) for event in agents.events(task.id)]


def _word(event: Any) -> str:
    if "statusUpdate" in event:
        return str(event["statusUpdate"]["status"]["state"]).removeprefix("TASK_STATE_")
    update = event["artifactUpdate"]
    return f"{update['artifact']['artifactId']}{'+' if update['append'] else ''}"


def counted(number: int) -> str:
    """What an agent says that counts so far."""
    return "".join(f"{n};" for n in range(number))
