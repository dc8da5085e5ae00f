"""Every component of a price affects everything that it should, in a real database.

Each token price is a prime number, so an amount shows which components it contains.
"""

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.credits.amounts import MICRO, format_credits
from shared.credits.holds import NewInvocation, hold
from shared.credits.prices import COMPONENTS, TokenCounts
from shared.credits.settlement import Outcome, Status, settle
from shared.credits.sweeps import mark_unresolved, settle_unresolved
from shared.db.database import Database
from shared.identity.access.callers import Caller
from shared.ids import new_id
from shared.models.catalog import ModelEntry
from shared.models.catalog_format import parse_catalog
from shared.models.dialects import parse_chat
from shared.models.invocations import new_invocation
from tests.shared.credits.calls import Calls
from tests.support.data.identity import IdentityFactory, make_settings
from web.models.catalog_schemas import ModelBody

PRIMES = dict(zip(COMPONENTS, (2, 3, 5, 7, 11, 13, 17, 19, 23), strict=False))
EACH_ALONE = [{name: prime} for name, prime in PRIMES.items()]
TOLD_BY_THE_REPLY = frozenset({"cached_prompt", "cache_write", "reasoning"})
"""Components of what only a report tells: an estimate counts none of it."""
COUNTS = TokenCounts(
    prompt_tokens=1009,
    completion_tokens=2003,
    cached_tokens=101,
    cache_write_tokens=103,
    reasoning_tokens=211,
)
_COST = "SELECT cost FROM usage_records WHERE invocation_id = CAST(:id AS uuid)"
_ENTERED = "SELECT -sum(amount) FROM ledger_entries WHERE reference = :id"


class Tenant:
    """Calls of one organization to a model with these prices."""

    def __init__(self, database: Database, prices: Mapping[str, int]) -> None:
        self.factory = IdentityFactory(database, make_settings())
        self.calls = Calls(database, self.factory.organization().id)
        self.calls.top_up(10**12)
        self.entry = entry(prices)

    @property
    def caller(self) -> Caller:
        return self.factory.actor(self.factory.person(self.calls.organization_id, bound=True)).caller

    def hold(self) -> NewInvocation:
        request = parse_chat({"model": "acme/one", "messages": [{"role": "user", "content": "How are you?"}]})
        invocation = new_invocation(
            new_id(), self.calls.organization_id, self.caller, self.entry, request, reserved_tokens=100
        )
        with self.calls.database.autocommit() as session:
            hold(session, invocation=invocation)
        return invocation

    def settle(self, invocation_id: UUID, token: UUID, counts: TokenCounts | None) -> int:
        outcome = Outcome(status=Status.COMPLETED, counts=counts, provider="test")
        with self.calls.database.autocommit() as session:
            return settle(session, invocation_id, token, outcome).cost

    def amounts(self, invocation_id: UUID) -> list[int]:
        """Return the cost of a call in its usage record and in the ledger."""
        with self.calls.database.autocommit() as session:
            return [
                int(session.execute(text(statement), {"id": str(invocation_id)}).scalar() or 0)
                for statement in (_COST, _ENTERED)
            ]


def entry(prices: Mapping[str, int]) -> ModelEntry:
    """Return a catalog entry with these prices in µcr for each token; others are zero."""
    lines = [f'{name}_price = "{format_credits(prices.get(name, 0) * MICRO)}"' for name in COMPONENTS]
    head = '[providers.one]\nkind = "scripted"\n[[models]]\nid = "acme/one"\n'
    upstreams = '\nupstreams = [{ provider = "one", model = "echo" }]\n'
    return parse_catalog(head + "\n".join(lines) + upstreams, source="test").entries[0]


@pytest.mark.parametrize("alone", EACH_ALONE, ids=COMPONENTS)
def test_a_component_is_held_charged_recorded_and_corrected(
    database: Database, alone: Mapping[str, int]
) -> None:
    tenant = Tenant(database, alone)
    invocation = tenant.hold()
    assert tenant.calls.balance.held == invocation.hold
    assert invocation.hold > 0
    dispatched = tenant.calls.dispatch(invocation.id)
    assert dispatched is not None
    assert dispatched.prices == tenant.entry.prices
    # The estimate first, so that both ways of charging are covered.
    tenant.settle(invocation.id, dispatched.token, None)
    cost = tenant.settle(invocation.id, dispatched.token, COUNTS)
    assert cost == tenant.entry.prices.price(COUNTS) > 0
    assert tenant.amounts(invocation.id) == [cost, cost]
    assert tenant.calls.discrepancies() == []


@pytest.mark.parametrize("alone", EACH_ALONE, ids=COMPONENTS)
def test_component_is_charged_for_a_call_of_a_lost_worker(
    database: Database, alone: Mapping[str, int]
) -> None:
    tenant = Tenant(database, alone)
    invocation = tenant.hold()
    dispatched = tenant.calls.dispatch(invocation.id)
    assert dispatched is not None
    tenant.calls.note_streamed(invocation.id, dispatched.token, 50)
    tenant.calls.lose(invocation.id)
    mark_unresolved(database)
    settle_unresolved(database, grace=timedelta(0))
    counts = TokenCounts(prompt_tokens=invocation.estimated_prompt_tokens, completion_tokens=50)
    cost = tenant.entry.prices.price(counts)
    assert cost > 0 or alone.keys() <= TOLD_BY_THE_REPLY
    assert tenant.amounts(invocation.id) == [cost, cost]
    assert tenant.calls.discrepancies() == []


def test_a_call_costs_the_sum_of_its_components(database: Database) -> None:
    tenant = Tenant(database, PRIMES)
    invocation = tenant.hold()
    dispatched = tenant.calls.dispatch(invocation.id)
    assert dispatched is not None
    cost = tenant.settle(invocation.id, dispatched.token, COUNTS)
    assert cost == sum(entry(alone).prices.price(COUNTS) for alone in EACH_ALONE)
    assert tenant.amounts(invocation.id) == [cost, cost]


def test_the_catalog_shows_every_component() -> None:
    shown = ModelBody.of(entry(PRIMES), {}).pricing.model_dump(exclude={"unit"})
    assert shown == {name: str(prime) for name, prime in PRIMES.items()}
