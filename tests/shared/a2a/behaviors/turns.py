"""Turns that no task stands behind, for behaviors that are asked directly."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from shared.a2a.types import Message, MessageRole, Part
from shared.a2a.updates import BehaviorKind, BehaviorSettings, Turn
from shared.identity.access.callers import Caller, Executor, ExecutorKind, Owner, OwnerKind
from shared.identity.tokens.usage_attribution import Attribution
from shared.ids import new_id


def message(
    text: str = "hello", *, role: MessageRole = MessageRole.USER, task_id: UUID | None = None, **fields: Any
) -> Message:
    """Something said."""
    values = {"message_id": str(new_id()), "role": role, "parts": (Part(text=text),), **fields}
    return Message.model_validate({**values, "task_id": str(task_id) if task_id else None})


def make_turn(
    said: Message | str = "hello",
    *,
    script: str | None = None,
    history: Sequence[Message] = (),
    task_id: UUID | None = None,
    model: str | None = None,
    instructions: str = "",
    caller: Caller | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
    **changes: Any,
) -> Turn:
    """A turn of a behavior with this script or model."""
    caller = caller or make_caller()
    task_id = task_id or new_id()
    assert caller.organization_id is not None
    assert caller.deployment_id is not None
    assert caller.owner is not None
    assert caller.payer_id is not None
    values: dict[str, Any] = {
        "id": new_id(),
        "lease_id": new_id(),
        "task_id": task_id,
        "context_id": "context",
        "message": said if isinstance(said, Message) else message(said, task_id=task_id),
        "is_first": not history,
        "history": lambda: tuple(history),
        "request_metadata": {},
        "accepted_output_modes": (),
        "active_extensions": frozenset(),
        "organization_id": caller.organization_id,
        "deployment_id": caller.deployment_id,
        "behavior": _settings(caller.deployment_id, script, model, instructions),
        "caller": caller,
        "attribution": Attribution(
            principal_id=caller.owner.id,
            daemon_id=caller.executor.id,
            deployment_id=caller.deployment_id,
            version_id=None,
            payer_id=caller.payer_id,
            distribution_id=None,
            transaction_id="transaction",
            channel="a2a",
            message_id=None,
            reported_caller=None,
        ),
        "is_cancelled": is_cancelled,
    }
    return Turn(**{**values, **changes})


def make_caller() -> Caller:
    """A daemon that exists nowhere."""
    organization_id, daemon_id = new_id(), new_id()
    return Caller(
        executor=Executor(kind=ExecutorKind.DAEMON_IDENTITY, id=daemon_id),
        credential_id=new_id(),
        organization_id=organization_id,
        owner=Owner(kind=OwnerKind.DAEMON_IDENTITY, id=daemon_id, organization_id=organization_id),
        payer_id=organization_id,
        deployment_id=new_id(),
    )


def _settings(
    deployment_id: UUID, script: str | None, model: str | None, instructions: str
) -> BehaviorSettings:
    return BehaviorSettings(
        id=new_id(),
        deployment_id=deployment_id,
        name="test",
        kind=BehaviorKind.SCRIPT if script is not None else BehaviorKind.MODEL,
        description="For tests.",
        model=model,
        instructions=instructions,
        script=script,
        extensions=(),
        tags=(),
        examples=(),
        input_modes=(),
        output_modes=(),
        is_default=True,
        updated_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
