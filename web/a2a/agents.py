"""List the agents of the caller's organization."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from shared.a2a.agents.listing import ListedAgent, list_agents
from shared.credits.errors import BillingOrganizationRequired
from shared.errors import PermissionDenied, ServiceUnavailable, ValidationFailed
from web.a2a.cards import WELL_KNOWN
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import Routes
from web.http.schemas import PageQuery
from web.http.wire_types import CamelModel, Id, UtcTime

routes = Routes("agents")


class AgentBody(CamelModel):
    """An agent and its addresses."""

    deployment_id: Id
    name: str
    url: Annotated[str, Field(description="The agent's base URL, for both bindings.")]
    card_url: str
    created_at: UtcTime

    @classmethod
    def of(cls, agent: ListedAgent, base_url: str) -> "AgentBody":
        """Return the model of an agent."""
        url = f"{base_url}/agents/{agent.id}"
        return cls(
            deployment_id=agent.id,
            name=agent.name,
            url=url,
            # Use the card URL below the agent's own URL: the card at the root of the host is the default
            # agent's.
            card_url=f"{url}{WELL_KNOWN}",
            created_at=agent.created_at,
        )


class AgentPage(CamelModel):
    """A page of agents, oldest first."""

    agents: Sequence[AgentBody]
    next_cursor: Id | None


@routes.route(
    "GET",
    "/agents",
    name="list_agents",
    summary="List the enabled agents of the caller's organization",
    authentication=Authentication.CALLER,
    query=PageQuery,
    responses={200: AgentPage},
    errors=(BillingOrganizationRequired, PermissionDenied, ValidationFailed, ServiceUnavailable),
)
def list_page(call: RequestContext) -> JsonResponse:
    base_url = call.services.settings.base_url
    with call.services.database.autocommit() as session:
        page = list_agents(session, call.caller, **call.query.position)
    shown = [AgentBody.of(agent, base_url) for agent in page.items]
    return JsonResponse(body=AgentPage.model_validate({"agents": shown, "next_cursor": page.next_cursor}))
