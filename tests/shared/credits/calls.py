"""Helpers for the model calls of one organization; each step runs in its own transaction.

Unless a test sets other prices, a token costs one µcr, so that numbers of tokens are amounts.
"""

from uuid import UUID, uuid4

from sqlalchemy import text

from shared.credits.balances import Balance, Policy, get_balance
from shared.credits.holds import Attribution, Dispatch, NewInvocation, Progress, dispatch, hold, renew, void
from shared.credits.ledger import Entered, top_up
from shared.credits.policies import set_policy
from shared.credits.prices import Prices, TokenCounts
from shared.credits.reconciliation import reconcile
from shared.credits.settlement import Outcome, Settlement, Status, settle
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.ids import new_id
from tests.support.models.prices import prices_of

UNIT_PRICES = prices_of(prompt=1_000_000, completion=1_000_000)
GIB = 1 << 30


class Calls:
    """The calls, top-ups and storage of one organization."""

    def __init__(self, database: Database, organization_id: UUID) -> None:
        self.database = database
        self.organization_id = organization_id

    def top_up(self, amount: int, reference: str | None = None) -> Entered:
        with self.database.transaction() as session:
            return top_up(
                session,
                organization_id=self.organization_id,
                amount=amount,
                reference=reference or str(uuid4()),
                actor=OPERATOR,
            )

    def set_policy(self, policy: Policy, *, overdraft: int = 0, spending_limit: int | None = None) -> Balance:
        with self.database.transaction() as session:
            return set_policy(
                session,
                organization_id=self.organization_id,
                policy=policy,
                overdraft=overdraft,
                spending_limit=spending_limit,
                actor=OPERATOR,
            )

    def new(
        self,
        amount: int,
        *,
        model: str = "acme/one",
        prompt_tokens: int = 0,
        prices: Prices = UNIT_PRICES,
        attribution: Attribution | None = None,
        invocation_id: UUID | None = None,
        request_hash: bytes | None = None,
        held_tokens: int = 0,
    ) -> NewInvocation:
        return NewInvocation(
            id=invocation_id or new_id(),
            organization_id=self.organization_id,
            model=model,
            hold=amount,
            prices=prices,
            estimated_prompt_tokens=prompt_tokens,
            attribution=attribution or Attribution(),
            request_hash=request_hash,
            held_tokens=held_tokens,
        )

    def hold(self, amount: int, **options: object) -> UUID:
        invocation = self.new(amount, **options)  # type: ignore[arg-type]
        with self.database.autocommit() as session:
            hold(session, invocation=invocation)
        return invocation.id

    def dispatch(self, invocation_id: UUID, token: UUID | None = None) -> Dispatch | None:
        with self.database.autocommit() as session:
            return dispatch(session, invocation_id, token=token)

    def dispatched(self, amount: int, **options: object) -> tuple[UUID, UUID]:
        """Hold and dispatch a call; return the invocation id and the dispatch token."""
        invocation_id = self.hold(amount, **options)
        taken = self.dispatch(invocation_id)
        assert taken is not None
        return invocation_id, taken.token

    def settle(
        self,
        invocation_id: UUID,
        token: UUID,
        tokens: int | None,
        *,
        status: Status = Status.COMPLETED,
        is_estimated: bool = False,
    ) -> Settlement:
        counts = None if tokens is None else TokenCounts(prompt_tokens=tokens, completion_tokens=0)
        outcome = Outcome(status=status, counts=counts, is_estimated=is_estimated, provider="test")
        with self.database.autocommit() as session:
            return settle(session, invocation_id, token, outcome)

    def charge(self, tokens: int, **options: object) -> Settlement:
        """Hold, dispatch and settle a call with these numbers of tokens."""
        return self.settle(*self.dispatched(tokens, **options), tokens)

    def note_streamed(self, invocation_id: UUID, token: UUID, tokens: int) -> bool:
        with self.database.autocommit() as session:
            progress = Progress(invocation_id=invocation_id, token=token, streamed_tokens=tokens)
            return renew(session, [progress]) == 1

    def void(self, invocation_id: UUID) -> bool:
        with self.database.autocommit() as session:
            return void(session, invocation_id)

    def store(self, day: str, *, bytes_of_30_days: int, price: int) -> None:
        """Insert a measured, uncharged day with the byte-time of so many bytes over 30 days."""
        self.run(
            "INSERT INTO storage_days (organization_id, day, stored_bytes, byte_microseconds, price)"
            " VALUES (:id, :day, 0, :byte_microseconds, :price)",
            id=self.organization_id,
            day=day,
            byte_microseconds=bytes_of_30_days * 30 * 86_400_000_000,
            price=price,
        )

    def lose(self, invocation_id: UUID, *, hours: int = 0) -> None:
        """Move the end of an invocation's lease some hours into the past."""
        self.run(
            "UPDATE invocations SET lease_until = now() - make_interval(hours => :hours, secs => 1) WHERE id = :id",
            id=invocation_id,
            hours=hours,
        )

    def run(self, statement: str, **values: object) -> None:
        plain = {name: str(value) if isinstance(value, UUID) else value for name, value in values.items()}
        with self.database.transaction() as session:
            session.execute(text(statement), plain)

    def state(self, invocation_id: UUID) -> str:
        with self.database.autocommit() as session:
            found = session.execute(
                text("SELECT state FROM invocations WHERE id = CAST(:id AS uuid)"), {"id": str(invocation_id)}
            )
            return str(found.scalar())

    @property
    def balance(self) -> Balance:
        with self.database.autocommit() as session:
            return get_balance(session, self.organization_id)

    def discrepancies(self) -> list[str]:
        """Return the kinds of the discrepancies that `reconcile` finds."""
        with self.database.transaction() as session:
            return sorted({found.kind for found in reconcile(session, self.organization_id)})
