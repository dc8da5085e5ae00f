"""The page of operations, for operators: processes, queues, sweeps and backlogs of this installation."""

from flask import Response

from shared.identity.access.permissions import Permission
from shared.operations.host_status import measure_queues, read_host_state
from shared.operations.queue_depths import measure_waiting_work
from web.console.declarations import ConsoleRoutes
from web.console.navigation import Group
from web.console.page_context import PageContext

routes = ConsoleRoutes("operations")


@routes.page(
    "/operations",
    title="Operations",
    permission=Permission.INSTALLATION_OPERATE,
    navigation=Group.ORGANIZATION,
    summary="Show processes, queues, sweeps and backlogs; for operators",
)
def show_operations(context: PageContext) -> Response:
    settings = context.services.settings
    with context.services.database.autocommit() as session:
        work = measure_waiting_work(session)
    # Render after the database session: the broker may be slow, and must not occupy a connection of Postgres
    # meanwhile.
    return context.render(
        "operations.html",
        work=work,
        watched=context.services.running.watched,
        host=read_host_state(settings),
        queues=measure_queues(settings),
    )
