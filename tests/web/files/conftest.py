"""Two organizations with agents, receiving identities and people: the clients of file tests."""

from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import pytest

from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.deployments import CreatedDeployment
from shared.identity.directory.role_bindings import list_role_bindings, unbind_role
from shared.identity.tokens.usage_attribution import Attribution, mint_usage_attribution
from tests.support.files.file_requests import Asker
from tests.support.web.web_process import Front

ATTRIBUTION = "Service-Usage-Attribution"


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Clients by role; `acme` and `globex` are the two organizations."""

    front: Front
    acme: UUID
    globex: UUID
    agent_deployment: CreatedDeployment
    agent: Asker
    for_p1: Asker
    for_p2: Asker
    colleague: Asker
    colleague_for_p1: Asker
    foreign_agent: Asker
    foreign_agent_for_p3: Asker
    agent_for_p3: Asker
    owner: Asker
    admin: Asker
    member: Asker
    globex_owner: Asker
    anonymous: Asker

    def newcomer(self) -> tuple[CreatedDeployment, Asker]:
        """A deployment of Acme that no other test knows."""
        created = self.front.identity.deployment(self.acme)
        return created, agent_of(self.front, created)

    def demoted(self) -> Asker:
        """A deployment without any role of its daemon, with a file of its own from before."""
        created, asker = self.newcomer()
        asker.upload(b"from before")
        demote(self.front, created)
        return asker


@pytest.fixture(scope="module")
def cast(front: Front) -> Cast:
    """The cast, in this module's database."""
    return make_cast(front)


def make_cast(front: Front) -> Cast:
    identity = front.identity
    acme, globex = identity.organization("Acme").id, identity.organization("Globex").id
    agent, colleague = identity.deployment(acme, "agent"), identity.deployment(acme, "colleague")
    foreign_agent = identity.deployment(globex, "foreign_agent")
    p1, p2 = identity.principal(acme, "p1").id, identity.principal(acme, "p2").id
    p3 = identity.principal(globex, "p3").id

    def person(organization_id: UUID, role: Role) -> Asker:
        authorization = identity.person(organization_id, role).authorization
        return Asker(front=front, headers={"Authorization": authorization}, organization_id=organization_id)

    return Cast(
        front=front,
        acme=acme,
        globex=globex,
        agent_deployment=agent,
        agent=agent_of(front, agent),
        for_p1=on_behalf_of(front, agent, p1, payer_id=acme),
        for_p2=on_behalf_of(front, agent, p2, payer_id=acme),
        colleague=agent_of(front, colleague),
        colleague_for_p1=on_behalf_of(front, colleague, p1, payer_id=acme),
        foreign_agent=agent_of(front, foreign_agent),
        foreign_agent_for_p3=on_behalf_of(front, foreign_agent, p3, payer_id=globex),
        agent_for_p3=on_behalf_of(front, agent, p3, payer_id=globex),
        owner=person(acme, Role.WORKSPACE_OWNER),
        admin=person(acme, Role.WORKSPACE_ADMIN),
        member=person(acme, Role.MEMBER),
        globex_owner=person(globex, Role.WORKSPACE_OWNER),
        anonymous=Asker(front=front, headers={}),
    )


def agent_of(front: Front, deployment: CreatedDeployment, scope: str | None = None) -> Asker:
    """Return the client of a deployment without attribution."""
    return Asker(
        front=front,
        headers={"Authorization": front.identity.authorization(deployment, scope)},
        owner_id=deployment.deployment.daemon_identity_id,
        organization_id=deployment.deployment.organization_id,
    )


def on_behalf_of(front: Front, deployment: CreatedDeployment, principal_id: UUID, *, payer_id: UUID) -> Asker:
    """Return the client of a deployment for a receiving identity, with the attribution that the router would send."""
    asker = agent_of(front, deployment)
    value = attribution_for(front, deployment, principal_id, payer_id=payer_id)
    return replace(
        asker, headers={**asker.headers, ATTRIBUTION: value}, owner_id=principal_id, organization_id=payer_id
    )


def attribution_for(
    front: Front, deployment: CreatedDeployment, principal_id: UUID, *, payer_id: UUID
) -> str:
    """Mint an attribution as the service's own router does."""
    attribution = Attribution(
        principal_id=principal_id,
        daemon_id=deployment.deployment.daemon_identity_id,
        deployment_id=deployment.deployment.id,
        version_id=deployment.version.id,
        payer_id=payer_id,
        distribution_id=None,
        transaction_id=str(uuid4()),
        channel=None,
        message_id=None,
        reported_caller=None,
    )
    return mint_usage_attribution(front.identity.keys, front.settings, attribution).value


def demote(front: Front, deployment: CreatedDeployment) -> None:
    """Remove all roles of a deployment's daemon."""
    organization_id = deployment.deployment.organization_id
    with front.services.database.transaction() as session:
        cursor: str | None = None
        while True:
            page = list_role_bindings(session, actor=OPERATOR, organization_id=organization_id, cursor=cursor)
            for binding in page.items:
                if binding.subject_identity_id == deployment.deployment.daemon_identity_id:
                    unbind_role(session, actor=OPERATOR, binding_id=binding.id)
            cursor = page.next_cursor
            if cursor is None:
                return


def promote(front: Front, deployment: CreatedDeployment, role: Role = Role.WORKSPACE_ADMIN) -> None:
    """Give a deployment's daemon a further role over its organization."""
    made = deployment.deployment
    front.identity.bind_identity(made.organization_id, made.daemon_identity_id, role)
