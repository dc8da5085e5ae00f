"""The yardstick of A2A: the published SDK's own server. Arguments are a port and optionally a database.

It runs as its documentation shows, in one process, without accounts, a queue or durable events: a task is one row,
written again at every event. The message decides what it does, as the script of `tests/benchmarks/agents.py` does for
the product.
"""

import asyncio
import sys

import uvicorn
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_rest_routes
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

PIECES = 49
PACE_SECONDS = 0.02
WITHOUT_END = "without end"


class Scripted(AgentExecutor):
    """An agent that completes at once, counts (fifty updates, at once or paced), or never ends."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        asked = context.get_user_input()
        if asked == WITHOUT_END:
            await updater.start_work()
            await asyncio.Event().wait()
        if asked != "now":
            await _count(updater, PACE_SECONDS if asked == "paced" else 0)
        await updater.complete(updater.new_agent_message([Part(text="Done")]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


async def _count(updater: TaskUpdater, pace_seconds: float) -> None:
    for number in range(PIECES):
        await updater.add_artifact([Part(text=f"piece {number} ")], artifact_id="count", append=number > 0)
        if pace_seconds:
            await asyncio.sleep(pace_seconds)


def application(port: int, *database_url: str) -> Starlette:
    """Create the server."""
    url = f"http://127.0.0.1:{port}"
    interface = AgentInterface(url=url, protocol_binding="HTTP+JSON", protocol_version="1.0")
    card = AgentCard(
        name="yardstick",
        description="Does what it is told.",
        version="1",
        supported_interfaces=[interface],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="count", name="count", description="Counts.", tags=["count"])],
    )
    store = _durable(*database_url) if database_url else InMemoryTaskStore()
    handler = DefaultRequestHandler(agent_executor=Scripted(), task_store=store, agent_card=card)
    return Starlette(routes=[*create_agent_card_routes(card), *create_rest_routes(handler)])


def _durable(database_url: str) -> DatabaseTaskStore:
    engine = create_async_engine(database_url.replace("postgresql:", "postgresql+asyncpg:", 1), pool_size=16)
    return DatabaseTaskStore(engine)


if __name__ == "__main__":
    own_port = int(sys.argv[1])
    uvicorn.run(application(own_port, *sys.argv[2:]), host="127.0.0.1", port=own_port, log_level="warning")
