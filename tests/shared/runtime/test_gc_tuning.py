"""Garbage collection is off while a process loads, and on from then on."""

import gc
from collections.abc import Iterator

import pytest

from shared.runtime.gc_tuning import ALLOCATIONS, freeze_loaded_objects, pause_while_loading


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(*before)


def test_what_is_loaded_is_looked_at_once_and_what_follows_as_usual() -> None:
    pause_while_loading()
    assert not gc.isenabled()
    freeze_loaded_objects()
    assert gc.isenabled()
    assert gc.get_threshold()[0] == ALLOCATIONS
    frozen = gc.get_freeze_count()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() > 0
    assert gc.get_freeze_count() <= frozen  # what other threads let go of is gone
