"""The installation that chaos befalls: one stack, who uses it, and where its fronts listen."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import SecretStr

from shared.db.database import Database
from tests.chaos.oracle import Oracle
from tests.chaos.patience import ATTEMPT_SECONDS, Patience
from tests.support.agents.rest_clients import Client, exchange_token
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.processes.stack import Stack

STORAGE_PRICE = 25
"""Credits for a GiB and 30 days: a day keeps the price that the service's own meter has found on it."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A stack that is set up; `identity` makes whatever a client needs to be somebody."""

    stack: Stack
    fronts: Sequence[str]
    credentials: dict[str, Any]
    database: Database
    identity: IdentityFactory
    oracle: Oracle
    seed: int
    loses_links: bool = False

    @property
    def organization_id(self) -> UUID:
        """The first organization, which has credits."""
        return UUID(self.credentials["organizationId"])

    @property
    def patience(self) -> Patience:
        """Somebody's patience with the fronts."""
        return Patience(self.fronts, self.oracle)

    def chance(self, who: str) -> random.Random:
        """Somebody's own chance, the same again with the same seed."""
        return random.Random(f"{self.seed}/{who}")

    def agent(self) -> Client:
        """The first deployment's agent; once a front answers."""
        return self.client(exchange_token(self.fronts[0], self.credentials))

    def owner(self) -> Client:
        """The first organization's owner, who operates the installation too."""
        return self.client(self.credentials["ownerApiKey"])

    def client(self, token: str) -> Client:
        """Somebody with a credential, who asks again when an answer is lost on its way."""
        return Client(self.fronts[0], token, timeout_seconds=ATTEMPT_SECONDS)


def set_up(
    stack: Stack, fronts: Sequence[str], oracle: Oracle, seed: int, *, loses_links: bool = False
) -> Installation:
    """Migrate, and make the first owner and organization."""
    stack.environment["STORAGE_PRICE"] = str(STORAGE_PRICE)
    credentials = stack.set_up()
    settings = make_settings(
        database_url=stack.database_url,
        base_url=stack.environment["BASE_URL"],
        encryption_keys=(SecretStr(stack.environment["ENCRYPTION_KEYS"]),),
    )
    database = Database(settings.database_url)
    return Installation(
        stack=stack,
        fronts=fronts,
        credentials=credentials,
        database=database,
        identity=IdentityFactory(database, settings),
        oracle=oracle,
        seed=seed,
        loses_links=loses_links,
    )
