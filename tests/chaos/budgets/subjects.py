"""The callers and their limits: people with keys, an agent, the identity it works for, and a second organization."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.credentials.api_keys import issue_api_key
from tests.chaos.budgets.calls import Credential
from tests.chaos.budgets.limits import Administration, Budget, Limit, SpendingLimit, Subject, Terms
from tests.chaos.installation import Installation
from tests.support.agents.rest_clients import exchange_token
from tests.support.data.identity import IdentityFactory, Person

FIRST_AMOUNT = 500
REQUESTS, TOKENS = 20, 40_000
"""A minute."""
PLENTIFUL = {"amount": "1000000", "reference": "plenty"}
ATTRIBUTION_SECONDS = 86_400


@dataclass(kw_only=True)
class Organization:
    """An organization with credits, and the client of its owner."""

    installation: Installation
    name: str
    id: UUID = field(init=False)
    by: Administration = field(init=False)

    def __post_init__(self) -> None:
        at = self.installation
        made = at.identity.organization(self.name)
        self.id = made.id
        owner = at.identity.person(made.id, Role.WORKSPACE_OWNER, bound=True)
        self.by = Administration(
            owner=at.client(owner.api_key),
            organization_id=str(self.id),
            retrying_client=at.retrying_client,
            observations=at.observations,
        )
        path = f"/admin/organizations/{self.id}/credits/top-ups"
        at.owner().request("POST", path, json=PLENTIFUL).raise_for_status()

    def member(self) -> Person:
        """Create a member with a key."""
        return self.installation.identity.person(self.id, bound=True)

    def credential_of(self, person: Person) -> Credential:
        """Return the credential of a member's first key."""
        return _credential(person.api_key, str(person.api_key_id), person)


class Subjects:
    """All callers of the workload."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._team = Organization(installation=installation, name="Team")
        self._capped = Organization(installation=installation, name="Capped")
        self.limits: list[Limit] = []
        self.payers: dict[Limit, Credential] = {}
        """One credential that each limit covers."""
        self.spending: Sequence[Credential] = [*self._people(), *self._agents(), *self._capped_members()]

    def own_budget(self) -> tuple[Credential, Administration]:
        """Create a member who manages exclusive budgets."""
        return self._team.credential_of(self._team.member()), self._team.by

    def _people(self) -> Sequence[Credential]:
        """Return a key shared by two clients, a second key of its user, and a key with limits per minute."""
        ada, bob = self._team.member(), self._team.member()
        first, second = self._team.credential_of(ada), self._second_key(ada)
        third = self._team.credential_of(bob)
        first_key, user = first.budgeted
        self._limit([first, second], Terms(subject=user))
        self._limit([first], Terms(subject=first_key, period="day"))
        self._limit([second], Terms(subject=second.budgeted[0], model="limited/responses"))
        bobs_key, bob_user = third.budgeted
        self._limit([third], Terms(subject=bobs_key, unit="requests", period="minute"), REQUESTS)
        self._limit([third], Terms(subject=bob_user, unit="tokens", period="minute"), TOKENS)
        return [first, first, second, third]

    def _agents(self) -> Sequence[Credential]:
        """Return the credentials of an agent that works for itself and for its distribution's recipients."""
        at, team = self._installation, self._team.id
        made, principal = at.identity.deployment(team, "spender"), at.identity.principal(team)
        daemon_id = made.deployment.daemon_identity_id
        secret = {"clientId": str(made.deployment.client_id), "clientSecret": made.credential.secret.value}
        token = exchange_token(at.fronts[0], {"deployment": secret})
        long_lived = at.identity.settings.model_copy(update={"attribution_seconds": ATTRIBUTION_SECONDS})
        factory = IdentityFactory(at.identity.database, long_lived)
        distribution = factory.distribution(team, principal_id=principal.id, deployment_id=made.deployment.id)
        header = {"Service-Usage-Attribution": factory.attribution(distribution)}
        daemon = Subject(kind="identity", id=str(daemon_id))
        deployment = Subject(kind="deployment", id=str(made.deployment.id))
        receiver = Subject(kind="identity", id=str(principal.id))
        own = Credential(token=token, budgeted=(daemon, deployment))
        routed = Credential(token=token, budgeted=(daemon, deployment, receiver), headers=header)
        self._limit([own, routed], Terms(subject=daemon, period="week"))
        self._limit([own, routed], Terms(subject=deployment))
        self._limit([routed], Terms(subject=receiver, period="month"))
        return [own, routed]

    def _capped_members(self) -> Sequence[Credential]:
        """Return members of an organization with a spending limit."""
        credentials = [self._capped.credential_of(self._capped.member()) for _ in range(2)]
        limit = SpendingLimit(self._capped.by, FIRST_AMOUNT)
        self._cover(limit, credentials)
        return credentials

    def _second_key(self, person: Person) -> Credential:
        with self._installation.identity.database.transaction() as session:
            issued = issue_api_key(
                session,
                actor=OPERATOR,
                user_id=person.user_id,
                organization_id=self._team.id,
                name="second",
            )
        return _credential(issued.secret.value, str(issued.key.id), person)

    def _limit(self, credentials: Sequence[Credential], terms: Terms, amount: int = FIRST_AMOUNT) -> None:
        self._cover(Budget(self._team.by, terms, amount), credentials)

    def _cover(self, limit: Limit, credentials: Sequence[Credential]) -> None:
        self.limits.append(limit)
        self.payers[limit] = credentials[0]
        for credential in credentials:
            credential.limits.append(limit)


def _credential(secret: str, key_id: str, person: Person) -> Credential:
    key, user = Subject(kind="api_key", id=key_id), Subject(kind="user", id=str(person.user_id))
    return Credential(token=secret, budgeted=(key, user))
