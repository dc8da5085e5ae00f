"""The navigation of the console, built from the pages that declare a place in it.

A page with a `Group` is an entry of the navigation. A page that names the path of an entry belongs below that
entry: the entry is marked while the page is open. `web/console/routes.py` lists the modules, and the entries
have the same order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from shared.identity.access.permissions import OPERATOR_PERMISSIONS, Permission

ROOT = "/console"


class Group(Enum):
    """A heading of the navigation. The members have the order of the headings.

    The overview has no heading and stands above them.
    """

    OVERVIEW = ""
    AGENTS = "Models and agents"
    STORAGE = "Files"
    USAGE = "Usage"
    ORGANIZATION = "Organization"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of the console: its path below the host, its title, and the permission that it requires."""

    path: str
    title: str
    permission: Permission | None
    """The permission to open the page. If it is None, every member may open the page, and sees only readable data."""
    navigation: Group | str | None
    """The group that lists the page, the path of the entry above the page, or None outside the navigation."""
    tab: str | None = None
    """The page's name among the tabs of its entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link of the navigation or of a row of tabs."""

    name: str
    path: str
    is_current: bool


class Navigation:
    """The navigation, built from all pages of the console."""

    def __init__(self, pages: Iterable[Page]) -> None:
        self._pages = tuple(pages)
        self._entries = [page for page in self._pages if isinstance(page.navigation, Group)]

    def groups(self, path: str, *, is_operator: bool) -> Sequence[tuple[str, Sequence[Link]]]:
        """Return each group's heading with its links.

        The link to the entry of the open `path` is marked as current.
        """
        return [
            (
                group.value,
                [
                    Link(name=entry.title, path=entry.path, is_current=self._is_below(path, entry))
                    for entry in self._entries
                    if entry.navigation is group
                    # List other pages even if they refuse the reader: such a page says which role opens it.
                    and (is_operator or entry.permission not in OPERATOR_PERMISSIONS)
                ],
            )
            for group in Group
        ]

    def tabs(self, path: str) -> Sequence[Link]:
        """Return the tabs of the entry that the open `path` belongs to."""
        return [
            Link(name=page.tab, path=page.path, is_current=page.path == path)
            for entry in self._entries
            if self._is_below(path, entry)
            for page in self._pages
            if page.tab is not None and page.path in (entry.path, *self._paths_below(entry))
        ]

    def _is_below(self, path: str, entry: Page) -> bool:
        if entry.path == ROOT:  # Every path of the console begins with ROOT, so compare the whole path.
            return path == ROOT
        # Compare whole segments: /console/keys is not above /console/keyside.
        return any(f"{path}/".startswith(f"{prefix}/") for prefix in (entry.path, *self._paths_below(entry)))

    def _paths_below(self, entry: Page) -> Iterable[str]:
        return (page.path.partition("/<")[0] for page in self._pages if page.navigation == entry.path)
