"""Convert a message to the arguments of a skill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from a2a.helpers.proto_helpers import get_message_text
from a2a.server.agent_execution import RequestContext as Request
from a2a.types import Message, Part
from google.protobuf.json_format import MessageToDict

from quartermaster import context
from quartermaster.agents.connection import Connection
from quartermaster.agents.received_files import File
from quartermaster.agents.skills import Skill


def read_arguments(skill: Skill, request: Request, connection: Connection) -> Mapping[str, Any]:
    """Return the arguments for a skill's parameters. Raises ValueError for a request without a message."""
    message = request.message
    if message is None:
        raise ValueError("The request has no message.")
    # Use functions, so that only the needed arguments are computed: a client or converted data parts cost time.
    known: Mapping[str, Callable[[], Any]] = {
        "text": lambda: get_message_text(message),
        "files": lambda: _read_files(message, connection),
        "data": lambda: [MessageToDict(part.data) for part in message.parts if part.HasField("data")],
        "message": lambda: message,
        "metadata": lambda: MessageToDict(message.metadata),
        "task": lambda: request.current_task,
        "context": context.current,
        "client": lambda: connection.async_client if skill.is_async else connection.client,
        "extensions": lambda: frozenset(request.requested_extensions),
    }
    return {name: known[name]() for name in skill.parameters}


def _read_files(message: Message, connection: Connection) -> tuple[File, ...]:
    parts = (part for part in message.parts if part.HasField("raw") or part.HasField("url"))
    return tuple(_read_file(part, connection) for part in parts)


def _read_file(part: Part, connection: Connection) -> File:
    described = MessageToDict(part.metadata).get(connection.file_artifact_uri) or {}
    return File(
        name=part.filename or "file",
        media_type=part.media_type or "application/octet-stream",
        url=part.url if part.HasField("url") else None,
        content=part.raw if part.HasField("raw") else None,
        sha256=described.get("contentSha256"),
        base_url=connection.base_url,
        issuer=connection.issuer,
    )
