"""All routes of agents."""

from web.a2a.agents import routes as agent_routes
from web.a2a.behaviors import routes as behavior_routes
from web.a2a.cards import extended_routes
from web.a2a.cards import routes as card_routes
from web.a2a.endpoints import routes as endpoint_routes
from web.a2a.extension_documents import routes as document_routes
from web.a2a.jsonrpc import routes as rpc_routes
from web.a2a.messages import routes as message_routes
from web.a2a.organization_tasks import routes as organization_routes
from web.a2a.push_configurations import routes as push_routes
from web.a2a.schedules import routes as schedule_routes
from web.a2a.tasks import routes as task_routes

ROUTES = (
    agent_routes,
    behavior_routes,
    card_routes,
    document_routes,
    endpoint_routes,
    extended_routes,
    message_routes,
    organization_routes,
    task_routes,
    push_routes,
    rpc_routes,
    schedule_routes,
)
