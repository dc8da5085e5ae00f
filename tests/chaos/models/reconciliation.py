"""Compare three accounts of the model calls to the unit: the upstream's, the clients', and the service's own.

The rules are those of `shared/credits/README.md` and `shared/models/README.md`. A call that reported its usage is
charged by that. A call whose report was lost with a worker or a client is charged an estimate, marked as such, of at
most what was generated. No call is charged twice, and no call whose response invited a retry was made.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.models.calls import CallResult, PlannedCall, Verdict
from tests.support.data.inventory import query
from tests.support.models.upstreams import Served
from tests.support.processes.stack import Stack

_RECORDS = """
SELECT u.invocation_id::text, u.organization_id::text, u.status, u.provider, u.prompt_tokens, u.completion_tokens,
    u.cost, u.is_estimated, i.prompt_price, i.completion_price, i.state
FROM usage_records u JOIN invocations i ON i.id = u.invocation_id WHERE u.model LIKE %s
"""
_OPEN = """
SELECT id::text, state FROM invocations
WHERE state IN ('held', 'dispatched', 'unresolved') AND model LIKE %s
"""
# A charge without an invocation matches every family, so that each comparison reports it.
_CHARGES = """
SELECT e.reference, count(*) FILTER (WHERE e.kind = 'charge'), -sum(e.amount)::bigint
FROM ledger_entries e LEFT JOIN invocations i ON i.id::text = e.reference
WHERE e.kind IN ('charge', 'correction') AND (i.model IS NULL OR i.model LIKE %s) GROUP BY e.reference
"""
_TOP_UPS = """
SELECT reference, organization_id::text, sum(amount)::bigint, count(*) FROM ledger_entries WHERE kind = 'top_up'
GROUP BY 1, 2
"""
_BALANCES = """
SELECT b.organization_id::text, b.posted, b.held, coalesce(sum(e.amount), 0)::bigint
FROM credit_balances b LEFT JOIN ledger_entries e ON e.organization_id = b.organization_id GROUP BY 1, 2, 3
"""
MILLION = 1_000_000
REPEATABLE = (429, 503)
"""Statuses by which an upstream says that it has done nothing."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The service's usage record of a call."""

    invocation_id: str
    organization_id: str
    status: str
    provider: str | None
    prompt_tokens: int
    completion_tokens: int
    cost: int
    is_estimated: bool
    prompt_price: int
    completion_price: int
    state: str

    @property
    def tokens(self) -> tuple[int, int]:
        return self.prompt_tokens, self.completion_tokens

    @property
    def owed(self) -> int:
        """Return the cost of these tokens at these prices, rounded up once."""
        exact = self.prompt_tokens * self.prompt_price + self.completion_tokens * self.completion_price
        return -(-exact // MILLION)

    @property
    def is_guess(self) -> bool:
        """Return whether the result is unknown: the worker died between dispatch and end of the call."""
        return self.is_estimated and self.status == "failed" and self.provider is None


class Reconciliation:
    """The three accounts of one run, after all work has ended."""

    def __init__(
        self,
        stack: Stack,
        calls: Sequence[tuple[PlannedCall, CallResult]],
        served: Sequence[Served],
        *,
        family: str,
        loses_reports: bool = False,
    ) -> None:
        """Compare the calls to one family of models, such as `fake/`; `loses_reports` if links were cut.

        With cut links, the upstream's report and its earlier output may be lost between the call and the provider's
        timeout. Such a call delivered and reported nothing, and costs nothing (docs/specification/models.md,
        settlement). A call was delivered if the client has read any part of it.
        """
        self._loses_reports = loses_reports
        self._heard = {
            planned_call.number
            for planned_call, result in calls
            if result.text or result.prompt_tokens is not None
        }
        self._stack = stack
        self._calls = calls
        self._family = (f"{family}%",)
        self._records = {row[0]: _record(row) for row in query(stack, _RECORDS, self._family)}
        self._served: Mapping[str, list[Served]] = defaultdict(list)
        for line in served:
            self._served[str(line.call)].append(line)

    def compare(self, topped_up: Mapping[str, tuple[str, int]]) -> Iterator[str]:
        """Yield every disagreement; `topped_up` are the credits that clients know of, by reference."""
        yield from self._against_the_upstream()
        yield from self._against_the_clients()
        yield from self._against_the_ledger()
        yield from self._compare_top_ups(topped_up)

    def _against_the_upstream(self) -> Iterator[str]:
        for call, lines in self._served.items():
            consuming = [line for line in lines if has_consumed(line)]
            record = self._records.get(call)
            if sum(line.status not in REPEATABLE for line in lines) > 1:
                yield f"called again though it may have cost something: {lines}"
            if record is None:
                yield f"uncharged: {lines}"
            elif not self._is_fair(record, consuming[0] if consuming else lines[-1]):
                yield f"charged wrongly: {record} for {lines}"
        for call in self._records.keys() - self._served.keys():
            record = self._records[call]
            if record.cost and not record.is_guess:
                yield f"charged for nothing: {record}"

    def _is_fair(self, record: Record, line: Served) -> bool:
        if record.tokens == (0, 0) and record.status in ("failed", "cancelled"):
            # The worker died, or closed the connection, before it received the generated text.
            is_lost = self._loses_reports and line.prompt_tokens not in self._heard
            return record.is_guess or is_lost or not line.is_reported
        if record.is_estimated:
            return record.completion_tokens <= line.completion_tokens and record.prompt_tokens > 0
        if line.is_reported:
            return record.tokens == (line.prompt_tokens, line.completion_tokens)
        return record.tokens == (0, 0) and not has_consumed(line)

    def _against_the_clients(self) -> Iterator[str]:
        consumed = {
            line.prompt_tokens for lines in self._served.values() for line in lines if has_consumed(line)
        }
        for planned_call, result in self._calls:
            if result.verdict is Verdict.REFUSED and planned_call.number in consumed:
                number = planned_call.number
                yield f"call {number} was to be tried again ({result.code}), and its upstream worked for it"
            if result.verdict is Verdict.COMPLETED:
                yield from self._compare_completed(planned_call, result)

    def _compare_completed(self, planned_call: PlannedCall, result: CallResult) -> Iterator[str]:
        """Yield a disagreement if a call read to its end is not charged by the numbers in its response."""
        record = self._records.get(str(result.invocation_id))
        is_reported = planned_call.script["usage"] != "none"
        if record is None:
            yield f"call {planned_call.number} was answered and never charged"
        elif record.tokens != (result.prompt_tokens, result.completion_tokens):
            yield f"call {planned_call.number} was answered as {result} and charged as {record}"
        elif is_reported and record.tokens != (planned_call.number, planned_call.chunks):
            yield f"call {planned_call.number} of {planned_call.chunks} pieces was charged as {record}"
        elif (record.status, record.is_estimated) != ("completed", not is_reported):
            yield f"call {planned_call.number} was answered, and its record says {record}"

    def _against_the_ledger(self) -> Iterator[str]:
        charges = {
            reference: (count, amount)
            for reference, count, amount in query(self._stack, _CHARGES, self._family)
        }
        for call, record in self._records.items():
            count, amount = charges.pop(call, (0, 0))
            if count > 1:
                yield f"charged {count} times: {record}"
            if amount != record.cost or record.cost != record.owed or record.state != "settled":
                yield f"entries of {amount}, {record.owed} owed: {record}"
        yield from (f"a charge without a record: {reference}" for reference in charges)
        still_open = query(self._stack, _OPEN, self._family)
        yield from (f"credits still held: {call} is {state}" for call, state in still_open)
        for organization_id, posted, held, entered in query(self._stack, _BALANCES):
            if held or posted != entered or posted < 0:
                yield f"{organization_id} has {posted} and holds {held}; its entries sum to {entered}"

    def _compare_top_ups(self, topped_up: Mapping[str, tuple[str, int]]) -> Iterator[str]:
        entered = {row[0]: row[1:] for row in query(self._stack, _TOP_UPS)}
        for reference, known in topped_up.items():
            if entered.get(reference) != (*known, 1):
                yield f"top-up {reference} of {known} was acknowledged, and entered as {entered.get(reference)}"


def has_consumed(line: Served) -> bool:
    """Return whether a call made its upstream work: it reported usage or sent text."""
    return line.is_reported or line.completion_tokens > 0


def _record(row: tuple[Any, ...]) -> Record:
    return Record(**dict(zip(Record.__dataclass_fields__, row, strict=True)))
