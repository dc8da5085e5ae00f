"""A web process on a port, and browsers with a session of it."""

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
def anonymous(port: int) -> Browser:
    """A browser without a session."""
    return Browser(port=port)


@pytest.fixture
def signed_in(front: Front, port: int) -> Callable[[Person], Browser]:
    """Return a function that signs a person in with a new browser."""

    def make(person: Person) -> Browser:
        browser = Browser(port=port)
        assert browser.sign_in(front, person.user_id).status == 303
        return browser

    return make


def with_organization(organization_id: UUID, browser: Browser) -> Browser:
    """Select an organization in a browser's session, and return the browser."""
    page = "/console/organizations"
    assert browser.submit(page, page, organization=str(organization_id)).status == 303
    return browser
