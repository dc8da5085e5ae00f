"""The command group `agents`: list agents, send messages to an agent, and cancel tasks, with A2A over REST."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID, uuid4

import click

from deploy.cli.client.rest_client import service
from deploy.cli.command_context import page_options
from deploy.cli.display.output import is_json_requested, print_document
from deploy.cli.display.streamed_replies import read_text, write_piece
from deploy.cli.exit_codes import ExitCode, Failure

# Send the version: without this header, A2A assumes version 0.3, which the service refuses.
_HEADERS = {"A2A-Version": "1.0"}
_DEFAULT = "default"
_FAILED = frozenset({"TASK_STATE_FAILED", "TASK_STATE_REJECTED", "TASK_STATE_CANCELED"})
_WAITING = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})
_SETTLED = _WAITING | _FAILED | {"TASK_STATE_COMPLETED"}  # states in which the agent writes nothing more

agents = click.Group("agents", help="List agents, send messages to them and cancel their tasks.")


@agents.command("ls", help="List the agents of your organization.")
@page_options
def ls(cursor: str | None, limit: int) -> None:
    given = {"limit": str(limit), **({"cursor": cursor} if cursor else {})}
    with service() as client:
        print_document(client.raw.request("GET", "/agents", query=given))


@agents.command(
    "talk",
    help="Send TEXT to AGENT (a deployment id or `default`) and print the reply as it is streamed. Without TEXT, a"
    " terminal starts a conversation that Ctrl-D ends; otherwise standard input is the text. --json prints each event.",
)
@click.argument("agent")
@click.argument("text", required=False)
def talk(agent: str, text: str | None) -> None:
    conversation = Conversation(agent)
    if text is None and sys.stdin.isatty():
        for line in _prompt_lines():
            conversation.send(line)
        return
    conversation.send(read_text(text))
    # A failed task fails the command only if the command sends one message: in a conversation, the next can succeed.
    if conversation.state in _FAILED:
        raise Failure(f"The task ended with state {conversation.state}.")


@agents.command(
    "cancel", help="Cancel your TASK at AGENT (a deployment id or `default`); an ended task is refused."
)
@click.argument("agent")
@click.argument("task_id", metavar="TASK", type=click.UUID)
def cancel(agent: str, task_id: UUID) -> None:
    path = f"{_root(agent)}/tasks/{task_id}:cancel"
    with service() as client:
        print_document(client.raw.request("POST", path, headers=_HEADERS))


class Conversation:
    """Messages to one agent in one context. A task that requires input receives the next message."""

    def __init__(self, agent: str) -> None:
        self._path = f"{_root(agent)}/message:stream"
        self._context_id: str | None = None
        self._task_id: str | None = None
        self._has_reply = False
        self.state = ""

    def send(self, text: str) -> None:
        """Send a message, and print the streamed reply until the turn ends.

        Raises Failure if the stream ends earlier, for example because the web process shuts down.
        """
        # Forget the id of an ended task, which accepts no messages. The next message then creates a new task in the
        # same context.
        self._task_id = self._task_id if self.state in _WAITING else None
        self._has_reply, self.state = False, ""
        ids = {"contextId": self._context_id, "taskId": self._task_id}
        message = {
            "messageId": str(uuid4()),
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            **{name: value for name, value in ids.items() if value},
        }
        with service() as client:
            for event in client.raw.stream(self._path, json={"message": message}, headers=_HEADERS):
                self._handle(event)
        if not is_json_requested():
            click.echo()
        if not self._has_reply:
            rest = f"; task {self._task_id} continues." if self._task_id else "; send the message again."
            raise Failure(f"The stream ended before the agent's reply was complete{rest}", ExitCode.TRY_LATER)

    def _handle(self, event: Mapping[str, Any]) -> None:
        if is_json_requested():
            print_document(event)
        if "error" in event:
            raise Failure(str(event["error"].get("message")))
        # An event has exactly one member, whose name is the kind of the event (A2A, StreamResponse).
        for kind, body in event.items():
            self._context_id = body.get("contextId", self._context_id)
            self._task_id = body.get("id" if kind == "task" else "taskId", self._task_id)
            self.state = body.get("status", {}).get("state", self.state)
            self._has_reply = kind == "message" or self.state in _SETTLED
            if not is_json_requested():
                _write(kind, body)


def _write(kind: str, body: Mapping[str, Any]) -> None:
    """Print the agent's content to standard output, and the agent's status messages to the error output."""
    if kind == "statusUpdate":
        text = "".join(_texts(body["status"].get("message", {})))
        if text:
            click.secho(text, err=True, dim=True)
    elif kind == "task":
        for artifact in body.get("artifacts", ()):
            _write_parts(artifact)
    else:
        _write_parts(body.get("artifact", body))


def _write_parts(body: Mapping[str, Any]) -> None:
    for text in _texts(body):
        write_piece(text)


def _texts(body: Mapping[str, Any]) -> Iterator[str]:
    for part in body.get("parts", ()):
        if "text" in part:
            yield part["text"]
        elif "url" in part:
            yield f"{part['url']}\n"


def _root(agent: str) -> str:
    # Convert the argument to a UUID first: other text could change the path of the request.
    return "" if agent == _DEFAULT else f"/agents/{click.UUID.convert(agent, None, None)}"


def _prompt_lines() -> Iterator[str]:
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            return
        if line:
            yield line
