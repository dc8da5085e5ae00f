"""The limits that owners set, by REST: budgets of keys, users, identities and deployments, and a spending limit.

A limit remembers every amount that it was given, the one that is being sent included: whatever the service says of it
must be one of those. Amounts are µcr, or a number of requests or tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import requests

from shared.credits.amounts import MICRO, format_credits, parse_credits
from tests.chaos.oracle import Oracle
from tests.chaos.patience import Patience
from tests.support.agents.rest_clients import Client

PLENTY = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What the service says of a limit."""

    amount: int
    spent: int
    held: int

    @property
    def used(self) -> int:
        """What is not free."""
        return self.spent + self.held


@dataclass(frozen=True, kw_only=True)
class Administration:
    """An organization's owner, who asks until there is an answer."""

    owner: Client
    organization_id: str
    patience: Patience
    oracle: Oracle

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> requests.Response:
        """Ask for something below the organization's address."""
        address = f"/admin/organizations/{self.organization_id}{path}"
        sent = {} if body is None else {"json": body}
        return self.patience.ask(
            f"{method} {path}", lambda front: self.owner.request(method, address, via=front, **sent)
        )

    def change(self, kind: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Change something that may be changed again and again; count it once it is acknowledged."""
        answer = self.ask(method, path, body)
        # A deletion whose answer was lost finds nothing the next time.
        if answer.ok or (method == "DELETE" and answer.status_code == HTTPStatus.NOT_FOUND):
            self.oracle.acknowledge(kind)
        else:
            self.oracle.violate(f"{kind} {path}: {answer.status_code} {answer.text}")

    def read(self, path: str) -> dict[str, Any]:
        """Read something that is there."""
        answer = self.ask("GET", path)
        if answer.status_code != HTTPStatus.OK:
            self.oracle.violate(f"GET {path}: {answer.status_code} {answer.text}")
            answer.raise_for_status()
        shown: dict[str, Any] = answer.json()
        return shown


class Limit:
    """A limit of whatever kind; `refusals` are the codes by which it refuses."""

    unit: str = "credits"
    refusals: tuple[str, ...] = ("budget_exceeded",)

    def __init__(self, by: Administration, amount: int) -> None:
        self._by = by
        self.amount = amount
        """The one that was acknowledged last."""
        self.amounts = {amount}

    @property
    def organization_id(self) -> str:
        """Whose limit it is."""
        return self._by.organization_id

    def set_amount(self, amount: int) -> None:
        """Change the amount; it applies once this returns."""
        self.amounts.add(amount)
        self._put(amount)
        self.amount = amount

    def read(self) -> Figures:
        """Read what is used of it."""
        raise NotImplementedError

    def _put(self, amount: int) -> None:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Whose calls a budget counts."""

    kind: str
    id: str


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a budget counts, and of which calls."""

    subject: Subject
    unit: str = "credits"
    period: str = "once"
    model: str | None = None

    def body(self) -> dict[str, Any]:
        """Write them as they are sent and shown."""
        subject = {"subjectKind": self.subject.kind, "subjectId": self.subject.id}
        return {**subject, "unit": self.unit, "period": self.period, "model": self.model}


class Budget(Limit):
    """A budget, which there is once this is made."""

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
        """Delete it; it refuses nobody once this returns."""
        self._by.change("budget deletion", "DELETE", f"/budgets/{self.id}")

    def _put(self, amount: int) -> None:
        self._by.change("budget change", "PATCH", f"/budgets/{self.id}", {"amount": self._shown(amount)})

    def _create(self) -> str:
        """Create it; where it exists, an answer was lost on its way."""
        body = {**self.terms.body(), "amount": self._shown(self.amount)}
        answer = self._by.ask("POST", "/budgets", body)
        if answer.status_code == HTTPStatus.CREATED:
            made = answer.json()
        elif answer.status_code == HTTPStatus.CONFLICT:
            listed = self._by.read("/budgets?limit=100")["budgets"]
            (made,) = (at for at in listed if self.terms.body().items() <= at.items())
        else:
            raise RuntimeError(f"no budget was made: {answer.status_code} {answer.text}")
        self._by.oracle.acknowledge("budget")
        return str(made["id"])

    def _shown(self, amount: int) -> str:
        return format_credits(amount) if self.unit == "credits" else str(amount)

    def counted(self, shown: str) -> int:
        """Read an amount of its unit."""
        return parse_credits(shown) // (1 if self.unit == "credits" else MICRO)


class SpendingLimit(Limit):
    """The most that an organization spends in a calendar month."""

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
