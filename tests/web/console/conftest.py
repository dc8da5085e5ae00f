"""The front on a port, and browsers that are signed in to it."""

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from tests.support.data.identity import Person
from tests.support.web.browser import Browser, served
from tests.support.web.web_process import Front


@pytest.fixture(scope="module")
def port(front: Front) -> Iterator[int]:
    with served(front.app) as port:
        yield port


@pytest.fixture
def stranger(port: int) -> Browser:
    """A browser that nobody has signed in with."""
    return Browser(port=port)


@pytest.fixture
def signed_in(front: Front, port: int) -> Callable[[Person], Browser]:
    """Give a browser that a person has signed in with, and that looks at the organization they are a member of."""

    def make(person: Person) -> Browser:
        browser = Browser(port=port)
        assert browser.sign_in(front, person.user_id).status == 303
        return browser

    return make


def looking_at(organization_id: UUID, browser: Browser) -> Browser:
    """Have a browser's session look at an organization."""
    page = "/console/organizations"
    assert browser.submit(page, page, organization=str(organization_id)).status == 303
    return browser
