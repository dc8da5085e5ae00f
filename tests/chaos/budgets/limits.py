"""The limits that owners set over REST: budgets of keys, users, identities and deployments, and a spending limit.

A limit remembers every amount that was sent, the one in transit included: the service may report no other amount.
Amounts are micro-credits, or a number of requests or tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import requests

from shared.credits.amounts import MICRO, format_credits, parse_credits
from tests.chaos.observations import Observations
from tests.chaos.retrying_client import RetryingClient
from tests.support.agents.rest_clients import Client

PLENTY = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures that the service reports for a limit."""

    amount: int
    spent: int
    held: int

    @property
    def used(self) -> int:
        """Return the part of the amount that is not free."""
        return self.spent + self.held


@dataclass(frozen=True, kw_only=True)
class Administration:
    """The REST client of an organization's owner; it retries until it receives a response."""

    owner: Client
    organization_id: str
    retrying_client: RetryingClient
    observations: Observations

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> requests.Response:
        """Send a request below the organization's path."""
        address = f"/admin/organizations/{self.organization_id}{path}"
        sent = {} if body is None else {"json": body}
        return self.retrying_client.ask(
            f"{method} {path}", lambda front: self.owner.request(method, address, via=front, **sent)
        )

    def change(self, kind: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Apply an idempotent change, and count it once it is acknowledged."""
        answer = self.ask(method, path, body)
        # If the response to a deletion was lost, the retry finds nothing.
        if answer.ok or (method == "DELETE" and answer.status_code == HTTPStatus.NOT_FOUND):
            self.observations.acknowledge(kind)
        else:
            self.observations.violate(f"{kind} {path}: {answer.status_code} {answer.text}")

    def read(self, path: str) -> dict[str, Any]:
        """Read an existing resource."""
        answer = self.ask("GET", path)
        if answer.status_code != HTTPStatus.OK:
            self.observations.violate(f"GET {path}: {answer.status_code} {answer.text}")
            answer.raise_for_status()
        shown: dict[str, Any] = answer.json()
        return shown


class Limit:
    """A limit of any kind; `refusals` are the error codes by which it refuses."""

    unit: str = "credits"
    refusals: tuple[str, ...] = ("budget_exceeded",)

    def __init__(self, by: Administration, amount: int) -> None:
        self._by = by
        self.amount = amount
        """The one that was acknowledged last."""
        self.amounts = {amount}

    @property
    def organization_id(self) -> str:
        """Return the id of the limited organization."""
        return self._by.organization_id

    def set_amount(self, amount: int) -> None:
        """Change the amount. It is in force when this returns."""
        self.amounts.add(amount)
        self._put(amount)
        self.amount = amount

    def read(self) -> Figures:
        """Read the current use."""
        raise NotImplementedError

    def _put(self, amount: int) -> None:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The subject whose calls a budget counts."""

    kind: str
    id: str


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a budget counts, and which calls it covers."""

    subject: Subject
    unit: str = "credits"
    period: str = "once"
    model: str | None = None

    def body(self) -> dict[str, Any]:
        """Return the terms in the form of requests and responses."""
        subject = {"subjectKind": self.subject.kind, "subjectId": self.subject.id}
        return {**subject, "unit": self.unit, "period": self.period, "model": self.model}


class Budget(Limit):
    """A budget; the constructor creates it."""

    def __init__(self, by: Administration, terms: Terms, amount: int) -> None:
        super().__init__(by, amount)
        self.terms = terms
        self.unit = terms.unit
        self.refusals = ("budget_exceeded",) if terms.unit == "credits" else ("rate_limit_exceeded",)
        self.id = self._create()

    def __str__(self) -> str:
        terms = self.terms
        return f"budget {self.id} of {terms.subject.kind}, {terms.unit} a {terms.period}"

    def read(self) -> Figures:
        shown = self._by.read(f"/budgets/{self.id}")
        return Figures(**{name: self.counted(shown[name]) for name in ("amount", "spent", "held")})

    def delete(self) -> None:
        """Delete the budget. It refuses no call after this returns."""
        self._by.change("budget deletion", "DELETE", f"/budgets/{self.id}")

    def _put(self, amount: int) -> None:
        self._by.change("budget change", "PATCH", f"/budgets/{self.id}", {"amount": self._shown(amount)})

    def _create(self) -> str:
        """Create the budget. If it exists, an earlier response was lost."""
        body = {**self.terms.body(), "amount": self._shown(self.amount)}
        answer = self._by.ask("POST", "/budgets", body)
        if answer.status_code == HTTPStatus.CREATED:
            made = answer.json()
        elif answer.status_code == HTTPStatus.CONFLICT:
            listed = self._by.read("/budgets?limit=100")["budgets"]
            (made,) = (at for at in listed if self.terms.body().items() <= at.items())
        else:
            raise RuntimeError(f"no budget was made: {answer.status_code} {answer.text}")
        self._by.observations.acknowledge("budget")
        return str(made["id"])

    def _shown(self, amount: int) -> str:
        return format_credits(amount) if self.unit == "credits" else str(amount)

    def counted(self, shown: str) -> int:
        """Return an amount in the budget's unit."""
        return parse_credits(shown) // (1 if self.unit == "credits" else MICRO)


class SpendingLimit(Limit):
    """The most that an organization may spend in a calendar month."""

    refusals = ("insufficient_credits",)

    def __init__(self, by: Administration, amount: int) -> None:
        super().__init__(by, amount)
        self._put(amount)

    def __str__(self) -> str:
        return f"spending limit of {self._by.organization_id}"

    def read(self) -> Figures:
        shown = self._by.read("/credits")
        names = {"amount": "spendingLimit", "spent": "spent", "held": "held"}
        return Figures(**{name: parse_credits(shown[at]) for name, at in names.items()})

    def _put(self, amount: int) -> None:
        policy = {"policy": "limit", "spendingLimit": format_credits(amount)}
        self._by.change("spending limit", "PUT", "/credit-policy", policy)
