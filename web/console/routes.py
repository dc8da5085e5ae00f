"""All routes of the console."""

from web.console import format as written
from web.console.declarations import ConsoleRoutes
from web.console.pages import (
    activity,
    agents,
    distributions,
    files,
    keys,
    ledger,
    models,
    operations,
    overview,
    people,
    preferences,
    sign_in,
    tasks,
)
from web.console.reasons import find_reason
from web.framework.rendering import add_filters
from web.framework.routes import Routes

PAGES: tuple[ConsoleRoutes, ...] = (
    sign_in.routes,
    preferences.routes,
    overview.routes,
    models.routes,
    models.asking,
    activity.routes,
    files.routes,
    distributions.routes,
    agents.routes,
    tasks.routes,
    keys.routes,
    ledger.routes,
    people.routes,
    operations.routes,
)
ROUTES: tuple[Routes, ...] = (sign_in.public_routes, *PAGES)

add_filters(
    money=written.money,
    credits=written.credits,
    number=written.number,
    percent=written.percent,
    short=written.short,
    size=written.size,
    relative=written.relative,
    absolute=written.absolute,
    day=written.day,
    reason=find_reason,
)
