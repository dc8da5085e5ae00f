"""Keep what was found of an endpoint: its card and interface, or what was wrong, and when to look again.

A card stays when a later reading fails. What was found of an endpoint that was replaced meanwhile is dropped.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import case, func, select, update

from shared.a2a.behaviors.remote_behaviors import describe_remote_behavior
from shared.a2a.exact_json import render
from shared.a2a.remote.cards.agent_cards import FoundCard
from shared.a2a.remote.cards.card_documents import Finding, declared_extensions
from shared.a2a.remote.endpoints import Endpoint
from shared.a2a.remote.tables import deployment_endpoints
from shared.db.database import Session

FRESH_FOR = timedelta(minutes=5)
"""How long a card is taken as it was read."""
RETRY_AFTER = timedelta(minutes=1)
FIRST_RETRY_AFTER = timedelta(seconds=10)
"""A card that was never read is tried for more and more seldom: messages wait for it."""
_table = deployment_endpoints.c
_REGISTERED = ("url", "card_url", "interface_override", "credential_encrypted")


def record_card(
    session: Session,
    endpoint: Endpoint,
    found: FoundCard,
    *,
    problem: Finding | None = None,
    has_list_tasks: bool | None = None,
) -> None:
    """Keep a card; with it the deployment's behavior declares the agent's extensions."""
    held = select(_table.card).where(*_is_still(endpoint)).with_for_update()
    row = session.execute(held).one_or_none()
    if row is None:
        return
    interface, card = found.interface, found.remote.card
    values: dict[str, Any] = {
        "card": found.remote.document,
        "etag": found.etag,
        "binding": interface.binding,
        "interface_url": interface.url,
        "tenant": interface.tenant,
        "streams": bool(card.capabilities.streaming),
    }
    if has_list_tasks is not None:
        values["has_list_tasks"] = has_list_tasks
    _record(session, endpoint, problem, **values)
    if row.card is None or render(row.card) != render(found.remote.document):
        describe_remote_behavior(
            session,
            endpoint.deployment_id,
            description=card.description,
            extensions=declared_extensions(card),
        )


def record_problem(session: Session, endpoint: Endpoint, problem: Finding) -> None:
    """Keep what is wrong; the card and the interface that were found before stay."""
    _record(session, endpoint, problem)


def record_unchanged(session: Session, endpoint: Endpoint) -> None:
    """Keep that the card is still the one that was read."""
    _record(session, endpoint, None)


def _record(session: Session, endpoint: Endpoint, problem: Finding | None, **values: Any) -> None:
    age = func.now() - _table.updated_at
    unread = func.least(func.greatest(age, FIRST_RETRY_AFTER), FRESH_FOR)
    again = FRESH_FOR if problem is None else case((_table.card.is_(None), unread), else_=RETRY_AFTER)
    session.execute(
        update(deployment_endpoints)
        .where(*_is_still(endpoint))
        .values(
            problem=problem.message if problem is not None else None,
            checked_at=func.now(),
            next_check_at=func.now() + again,
            **values,
        )
    )


def _is_still(endpoint: Endpoint) -> list[Any]:
    """Give the conditions that an endpoint is the one that was looked at."""
    same = [_table[name].is_not_distinct_from(getattr(endpoint, name)) for name in _REGISTERED]
    return [_table.deployment_id == endpoint.deployment_id, *same]
