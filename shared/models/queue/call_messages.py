"""A model call's Celery message, in the form in which kombu keeps it in Valkey.

The message is one of Celery's protocol 2, and equal calls have equal messages. The front writes it itself, so that it
travels in one round trip with the request; through `send_task` it costs as much as the rest of the queue. A test
compares it with kombu's own. Its form is that of its queues: another form needs queues of another name, so that no
worker reads what it does not understand.
"""

import json
import zlib
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from shared.messaging.broker import KEY_PREFIX
from shared.messaging.queues import MODELS, MODELS_ASIDE
from shared.messaging.replies import ReplyAddress

TASK = "models.invoke"
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedCall:
    """A call as it waits: where its replies go, the provider that is asked first, and its queue."""

    address: ReplyAddress
    provider: str
    queue: str


def queue_of(provider: str, organization_id: UUID) -> str:
    """Name the queue of an organization's calls to a provider."""
    return MODELS[zlib.crc32(f"{provider}/{organization_id}".encode()) % len(MODELS)]


def parked_queue(provider: str) -> str:
    """Name the queue of a provider's calls that were put aside."""
    return MODELS_ASIDE + provider


def key_of(queue: str) -> str:
    """Name the list in Valkey that is a queue; the next message is its last entry."""
    return KEY_PREFIX + queue


def message_parts(call: QueuedCall) -> dict[str, Any]:
    """Give the parts of a call's message."""
    task_id = str(call.address.invocation_id)
    fields = {"channel": call.address.channel, "provider": call.provider}
    return {
        "body": _ENCODE(((), fields, {})),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": TASK,
            "id": task_id,
            "root_id": task_id,
            "parent_id": None,
            "group": None,
            "retries": 0,
            "ignore_result": True,
        },
        "properties": {
            "correlation_id": task_id,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": call.queue},
            "priority": 0,
            "delivery_tag": task_id,
        },
    }


def write_message(call: QueuedCall) -> str:
    """Write a call as an entry of a queue in Valkey."""
    return _ENCODE(message_parts(call))


def read_message(headers: dict[str, Any], body: str | bytes, delivery_info: dict[str, Any]) -> QueuedCall:
    """Read a call's message. Raises KeyError, TypeError or ValueError for what is none."""
    _, fields, _ = json.loads(body)
    address = ReplyAddress(invocation_id=UUID(headers["id"]), channel=str(fields["channel"]))
    return QueuedCall(
        address=address, provider=str(fields["provider"]), queue=str(delivery_info["routing_key"])
    )


def read_entry(entry: bytes) -> QueuedCall:
    """Read an entry of a queue. Raises KeyError, TypeError or ValueError for what is none."""
    message = json.loads(entry)
    return read_message(message["headers"], message["body"], message["properties"]["delivery_info"])
