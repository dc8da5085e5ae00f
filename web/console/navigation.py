"""What the console has, under the service's own words."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A page in the navigation."""

    name: str
    path: str
    is_here: bool = False


GROUPS: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (
    ("", (("Overview", "/console"),)),
    ("Provisions", (("Models", "/console/models"), ("Agents", "/console/agents"))),
    ("Stores", (("Files", "/console/files"), ("Distributions", "/console/distributions"))),
    (
        "Accounts",
        (
            ("Activity", "/console/activity"),
            ("Keys and budgets", "/console/keys"),
            ("Ledger", "/console/ledger"),
        ),
    ),
    ("House", (("People and roles", "/console/people"),)),
)
BELOW = {"/console/tasks": "/console/agents", "/console/budgets": "/console/keys"}
"""Pages that belong to a place whose path they do not begin with."""
OPERATORS = ("Operations", "/console/operations")


def navigation(here: str, *, is_operator: bool) -> Sequence[tuple[str, Sequence[Place]]]:
    """Give the groups of pages; the one that is open, or that has the open one below it, is marked."""
    groups = [(group, [_place(here, *place) for place in places]) for group, places in GROUPS]
    if is_operator:
        groups[-1][1].append(_place(here, *OPERATORS))
    return groups


def _place(here: str, name: str, path: str) -> Place:
    return Place(name=name, path=path, is_here=_is_at(here, path))


def _is_at(here: str, path: str) -> bool:
    if path == "/console":
        return here == path
    return any(f"{here}/".startswith(f"{at}/") for at in (path, *_below(path)))


def _below(path: str) -> Sequence[str]:
    return [page for page, place in BELOW.items() if place == path]
