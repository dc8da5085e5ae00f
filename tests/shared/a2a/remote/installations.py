"""A deployment whose endpoint a test sets and checks, in an installation that may reach this host."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from shared.a2a.remote.cards.endpoint_check import EndpointReport, check_endpoint
from shared.a2a.remote.endpoints import Endpoint, EndpointDraft, find_endpoint, put_endpoint
from shared.config.settings import Settings
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from tests.support.data.identity import IdentityFactory, make_settings

DEVELOPING: dict[str, Any] = {"egress_allow_private": True, "egress_allow_http": True}


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A deployment, and who administers its endpoint."""

    database: Database
    settings: Settings
    factory: IdentityFactory
    deployment_id: UUID

    def put(self, url: str, **draft: Any) -> Endpoint:
        with self.database.transaction() as session:
            put_endpoint(
                session,
                self.settings,
                actor=OPERATOR,
                deployment_id=self.deployment_id,
                draft=EndpointDraft(url=url, **draft),
            )
        return self.endpoint()

    def endpoint(self) -> Endpoint:
        with self.database.transaction() as session:
            endpoint = find_endpoint(session, self.deployment_id)
        assert endpoint is not None
        return endpoint

    def check(self, url: str, **draft: Any) -> EndpointReport:
        self.put(url, **draft)
        return check_endpoint(
            self.database, self.factory.keys, self.settings, actor=OPERATOR, deployment_id=self.deployment_id
        )

    def fault(self, url: str, **draft: Any) -> str:
        """Check, and give the one problem."""
        report = self.check(url, **draft)
        (problem,) = report.problems
        assert not report.is_usable
        assert report.endpoint.problem == problem.message
        return problem.code.value


def make_installation(database: Database, **settings: object) -> Installation:
    chosen = make_settings(**DEVELOPING, **settings)
    factory = IdentityFactory(database, chosen)
    deployment = factory.deployment(factory.organization().id)
    return Installation(
        database=database, settings=chosen, factory=factory, deployment_id=deployment.deployment.id
    )
