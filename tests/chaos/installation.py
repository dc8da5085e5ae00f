"""The installation under chaos: one stack, its users, and the addresses of its web processes."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import SecretStr

from shared.db.database import Database
from tests.chaos.observations import Observations
from tests.chaos.retrying_client import ATTEMPT_SECONDS, RetryingClient
from tests.support.agents.rest_clients import Client, exchange_token
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.processes.stack import Stack

STORAGE_PRICE = 25
"""Credits for a GiB and 30 days: a day keeps the price that the service's own meter has found on it."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """An installation that is set up; `identity` creates the users and credentials that clients need."""

    stack: Stack
    fronts: Sequence[str]
    credentials: dict[str, Any]
    database: Database
    identity: IdentityFactory
    observations: Observations
    seed: int
    loses_links: bool = False

    @property
    def organization_id(self) -> UUID:
        """Return the id of the first organization, which has credits."""
        return UUID(self.credentials["organizationId"])

    @property
    def retrying_client(self) -> RetryingClient:
        """Return a client that retries over all web processes."""
        return RetryingClient(self.fronts, self.observations)

    def chance(self, who: str) -> random.Random:
        """Return a client's own random generator; the same seed yields the same numbers."""
        return random.Random(f"{self.seed}/{who}")

    def agent(self) -> Client:
        """Return the agent of the first deployment, once a web process responds."""
        return self.client(exchange_token(self.fronts[0], self.credentials))

    def owner(self) -> Client:
        """Return the first organization's owner, who is also the operator."""
        return self.client(self.credentials["ownerApiKey"])

    def client(self, token: str) -> Client:
        """Return a client with a credential, which repeats requests whose response is lost."""
        return Client(self.fronts[0], token, timeout_seconds=ATTEMPT_SECONDS)


def set_up(
    stack: Stack, fronts: Sequence[str], observations: Observations, seed: int, *, loses_links: bool = False
) -> Installation:
    """Migrate the database, and create the first owner and organization."""
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
        observations=observations,
        seed=seed,
        loses_links=loses_links,
    )
