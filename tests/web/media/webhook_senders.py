"""Distributions that are set up for a network, and the network's webhooks to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text
from werkzeug.test import TestResponse

from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.distributions import update_distribution
from shared.media.networks.registry import NETWORKS
from tests.support.data.identity import Person
from tests.support.networks import StandIn
from tests.support.web.web_process import Front


@dataclass(frozen=True, kw_only=True)
class Line:
    """A network's line to a distribution."""

    front: Front
    distribution_id: UUID
    organization_id: UUID
    stand_in: StandIn
    administrator: Person

    @property
    def path(self) -> str:
        return f"/distributions/{self.distribution_id}/webhooks/{self.stand_in.name}"

    @property
    def url(self) -> str:
        return self.front.settings.base_url + self.path

    @property
    def settings_path(self) -> str:
        return f"/admin/distributions/{self.distribution_id}/networks/{self.stand_in.name}"

    def put_settings(self, settings: Mapping[str, str] | None = None, **more: Any) -> TestResponse:
        """Set the network up, by default with its stand-in's settings."""
        body = {"settings": dict(self.stand_in.settings if settings is None else settings), **more}
        return self.front.put(self.settings_path, self.administrator.authorization, json=body)

    def send(
        self, body: bytes, headers: Mapping[str, str] | None = None, *, at: float | None = None
    ) -> TestResponse:
        """Send a webhook as the network does, now or at another time, but for these headers."""
        signed = self.stand_in.sign(body, url=self.url, at=at)
        return self.front.post(self.path, data=body, headers=signed | dict(headers or {}))

    def imports(self) -> list[Any]:
        """Every import of the distribution, in order."""
        statement = text("SELECT * FROM media_imports WHERE distribution_id = :id ORDER BY id")
        with self.front.services.database.autocommit() as session:
            return list(session.execute(statement, {"id": self.distribution_id}).all())


def open_line(
    front: Front, stand_in: StandIn, *, is_set_up: bool = True, organization_id: UUID | None = None
) -> Line:
    """Create a distribution, by default with an organization of its own."""
    make = front.identity
    organization_id = organization_id or make.organization().id
    deployment, principal = make.deployment(organization_id), make.principal(organization_id)
    made = make.distribution(
        organization_id, principal_id=principal.id, deployment_id=deployment.deployment.id
    )
    with front.services.database.transaction() as session:
        update_distribution(
            session, actor=OPERATOR, distribution_id=made.distribution.id, networks=list(NETWORKS)
        )
    line = Line(
        front=front,
        distribution_id=made.distribution.id,
        organization_id=organization_id,
        stand_in=stand_in,
        administrator=make.operator(),
    )
    if is_set_up:
        answer = line.put_settings()
        assert answer.status_code == 200, answer.text
    return line
