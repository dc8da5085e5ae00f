"""Operations: processes, queues, sweeps and what waits for workers, for those who operate the installation."""

from flask import Response

from shared.identity.access.authorization import authorize_operation
from shared.operations.host_status import measure_queues, read_host_state
from shared.operations.queue_depths import measure_waiting_work
from web.console.declarations import ConsoleRoutes
from web.console.page_context import PageContext

routes = ConsoleRoutes("operations")


@routes.page(
    "/operations", summary="Show processes, queues, sweeps and what waits for workers; for operators"
)
def show_operations(context: PageContext) -> Response:
    authorize_operation(context.actor)
    settings = context.services.settings
    with context.services.database.autocommit() as session:
        work = measure_waiting_work(session)
    return context.render(
        "operations.html",
        work=work,
        watched=context.services.running.watched,
        host=read_host_state(settings),
        queues=measure_queues(settings),
    )
