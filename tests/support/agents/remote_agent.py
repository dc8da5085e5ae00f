"""A third-party agent: a2a-sdk's own server with both bindings, which does what the text of a message requests.

`python -m tests.support.agents.remote_agent [--when-told] PORT [DATABASE_URL | DIRECTORY]`. It keeps tasks in memory,
in Postgres, or in files; with files, a restarted process continues where the killed one was. `/seen` returns the
requests with their headers. Only the executor, the file store and `/seen` are ours. With `--when-told`, the process
prints when it is ready, and listens after it has read a line.
"""

import asyncio
import json
import sys
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from a2a.helpers import (
    new_data_part,
    new_raw_part,
    new_task_from_user_message,
    new_text_message,
    new_text_part,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Task, TaskState
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response

from tests.support.servers.local_servers import ADDRESS

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Teller(AgentExecutor):
    """Executes the text of a message: `count 200 0.003`, `ask`, `file`, `large`, `fail`, `raise`, `message`, `hang`."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        verb, *more = context.get_user_input().split() or ["count"]
        if verb == "message":
            await event_queue.enqueue_event(new_text_message("pong"))
            return
        if context.current_task is None:
            assert context.message is not None
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        assert context.task_id is not None
        at = context.current_task.context_id if context.current_task else context.context_id
        assert at is not None
        updater = TaskUpdater(event_queue, context.task_id, at)
        await getattr(self, f"_{verb}", self._count)(updater, *more)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    async def _count(self, updater: TaskUpdater, times: str = "5", pause: str = "0", *_: str) -> None:
        await updater.start_work(_said(updater, "Counting"))
        for number in range(int(times)):
            await _tell(updater, [new_text_part(f"{number};")], "count", is_first=number == 0)
            await asyncio.sleep(float(pause))
        await updater.complete(_said(updater, "Counted"))

    async def _ask(self, updater: TaskUpdater, *_: str) -> None:
        await updater.start_work()
        await _tell(updater, [new_text_part("before;")], "talk", is_first=True)
        await updater.requires_input(_said(updater, "Which one?"))

    async def _answer(self, updater: TaskUpdater, *_: str) -> None:
        await updater.start_work()
        await _tell(updater, [new_text_part("after;")], "talk", is_first=False)
        await updater.complete()

    async def _file(self, updater: TaskUpdater, *_: str) -> None:
        await updater.start_work()
        picture = new_raw_part(b"\x89PNG\r\n\x1a\n" + bytes(range(256)), media_type="image/png")
        picture.filename = "picture.png"
        await updater.add_artifact([picture], artifact_id="picture", name="Picture")
        await updater.add_artifact([new_data_part({"n": [1, 2.5, None]})], artifact_id="numbers")
        await updater.complete()

    async def _large(self, updater: TaskUpdater, times: str = "40", *_: str) -> None:
        await updater.start_work()
        for number in range(int(times)):
            await _tell(updater, [new_text_part(f"{number:04}" * 1024)], "large", is_first=number == 0)
        await updater.complete()

    async def _fail(self, updater: TaskUpdater, *_: str) -> None:
        await updater.failed(_said(updater, "Not today"))

    async def _raise(self, *_: object) -> None:
        raise RuntimeError("a secret of the agent's")

    async def _hang(self, updater: TaskUpdater, *_: str) -> None:
        await updater.start_work(_said(updater, "Waiting"))
        await asyncio.sleep(3600)


async def _tell(updater: TaskUpdater, parts: list[Part], artifact_id: str, *, is_first: bool) -> None:
    await updater.add_artifact(parts, artifact_id=artifact_id, append=not is_first)


def _said(updater: TaskUpdater, text: str) -> Any:
    return updater.new_agent_message([new_text_part(text)])


class FileStore(InMemoryTaskStore):
    """Keeps each task in memory and in a file."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    async def save(self, task: Task, context: ServerCallContext) -> None:
        await super().save(task, context)
        written = self._directory / f".{task.id}"
        written.write_bytes(task.SerializeToString())
        written.replace(self._directory / task.id)

    async def go_on(self) -> None:
        """Read all tasks, and continue the unfinished ones."""
        context = ServerCallContext()
        self._under_way = set[asyncio.Task[None]]()
        for path in self._directory.glob("[!.]*"):
            task = Task.FromString(path.read_bytes())
            await super().save(task, context)
            if task.status.state in (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING):
                self._under_way.add(asyncio.create_task(self._count(task, context)))

    async def _count(self, task: Task, context: ServerCallContext) -> None:
        _, times, pause = task.history[0].parts[0].text.split()
        if not task.artifacts:
            task.artifacts.add(artifact_id="count")
        for number in range(len(task.artifacts[0].parts), int(times)):
            task.artifacts[0].parts.append(new_text_part(f"{number};"))
            task.status.state = TaskState.TASK_STATE_WORKING
            await self.save(task, context)
            await asyncio.sleep(float(pause))
        if task.status.HasField("message"):
            task.history.append(task.status.message)
        task.status.message.CopyFrom(new_text_message("Counted"))
        task.status.state = TaskState.TASK_STATE_COMPLETED
        await self.save(task, context)


class Noting:
    """Records the head of each request, in order of arrival."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], seen: list[Any]) -> None:
        self._app = app
        self._seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/seen":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            self._seen.append({"method": scope["method"], "path": scope["path"], "headers": headers})
        await self._app(scope, receive, send)


def card_of(port: int, *, streams: bool = True) -> AgentCard:
    """Return the agent's card."""
    at = f"http://{ADDRESS}:{port}"
    return AgentCard(
        name="Teller",
        description="Does what it is told.",
        version="1",
        supported_interfaces=[
            AgentInterface(url=at, protocol_binding="HTTP+JSON", protocol_version="1.0"),
            AgentInterface(url=f"{at}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"),
        ],
        capabilities=AgentCapabilities(streaming=streams),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="tell", name="Tell", description="Tells.", tags=["test"])],
    )


def make_app(port: int, store: TaskStore) -> Starlette:
    """Return the agent's application."""
    card, seen = card_of(port), list[Any]()
    handler = DefaultRequestHandler(agent_executor=Teller(), task_store=store, agent_card=card)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if isinstance(store, FileStore):
            await store.go_on()
        elif isinstance(store, DatabaseTaskStore):
            await store.initialize()
        yield

    app = Starlette(
        lifespan=lifespan,
        routes=[
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, rpc_url="/rpc"),
            *create_rest_routes(handler),
        ],
    )

    async def tell_seen(_: Any) -> Response:
        return JSONResponse(json.loads(json.dumps(seen)))

    app.add_route("/seen", tell_seen)
    app.add_middleware(Noting, seen=seen)
    return app


def main() -> None:
    """Serve until killed."""
    arguments = ArgumentParser()
    arguments.add_argument("--when-told", action="store_true")
    arguments.add_argument("port", type=int)
    arguments.add_argument("store", nargs="?")
    options = arguments.parse_args()
    app = make_app(options.port, _store(options.store))
    if options.when_told:
        print("ready", flush=True)
        if not sys.stdin.readline():
            return
    uvicorn.run(app, host=ADDRESS, port=options.port, log_level="error", access_log=False)


def _store(at: str | None) -> TaskStore:
    if at is None:
        return InMemoryTaskStore()
    if Path(at).is_dir():
        return FileStore(Path(at))
    url = make_url(at).set(drivername="postgresql+asyncpg")
    return DatabaseTaskStore(create_async_engine(url), table_name="tasks_of_an_agent")


if __name__ == "__main__":
    main()
