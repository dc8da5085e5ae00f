"""Every network's stand-in, running."""

from collections.abc import Iterator, Mapping

import pytest

from tests.support import networks


@pytest.fixture(scope="module")
def running() -> Iterator[Mapping[type[networks.StandIn], networks.StandIn]]:
    started = {make: make().__enter__() for make in networks.STAND_INS}
    yield started
    for stand_in in started.values():
        stand_in.__exit__(None, None, None)
