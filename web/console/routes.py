"""All routes of the console. Every page module is registered here, and the navigation has the same order."""

from web.console import format as formats
from web.console.declarations import ConsoleRoutes
from web.console.navigation import Navigation
from web.console.pages import (
    activity,
    agents,
    budgets,
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
from web.framework.rendering import add_filters
from web.framework.routes import Routes
from web.openapi.problems import find_problem

PAGES: tuple[ConsoleRoutes, ...] = (
    overview.routes,
    models.routes,
    agents.routes,
    tasks.routes,
    files.routes,
    distributions.routes,
    activity.routes,
    keys.routes,
    budgets.routes,
    ledger.routes,
    people.routes,
    operations.routes,
    preferences.routes,
    sign_in.routes,
)
# Only signing in needs no session. A test checks that every other route of the console requires a session.
ROUTES: tuple[Routes, ...] = (sign_in.public_routes, *PAGES)
NAVIGATION = Navigation(page for routes in PAGES for page in routes.pages)

# Add the filters at import, before any template: Jinja refuses to compile a template with an unknown filter.
add_filters(
    money=formats.money,
    credits=formats.credits,
    number=formats.number,
    percent=formats.percent,
    short=formats.short,
    size=formats.size,
    relative=formats.relative,
    absolute=formats.absolute,
    day=formats.day,
    problem=find_problem,
    navigation=NAVIGATION.groups,
    tabs=NAVIGATION.tabs,
)
