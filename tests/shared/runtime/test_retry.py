"""What a server that is away prevented is done again, for a while; everything else fails at once."""

from collections.abc import Callable

import pytest

from shared.errors import DomainError, Kind, ServiceUnavailable
from shared.runtime.retry import backoff_seconds, jittered, retry


class StorageFull(DomainError):
    """There is no room."""

    code = "storage_full"
    kind = Kind.STORAGE_FULL


class Wrong(DomainError):
    """This will not pass."""

    code = "wrong"
    kind = Kind.INVALID


def failing(*failures: DomainError) -> Callable[[], int]:
    left = list(failures)

    def act() -> int:
        if left:
            raise left.pop(0)
        return len(failures)

    return act


def test_what_passes_is_tried_again_until_it_works() -> None:
    assert retry(failing(ServiceUnavailable("away"), StorageFull()), for_seconds=60) == 2


def test_what_does_not_pass_fails_at_once() -> None:
    with pytest.raises(Wrong):
        retry(failing(Wrong()), for_seconds=60)


def test_what_lasts_is_given_up() -> None:
    with pytest.raises(ServiceUnavailable):
        retry(failing(*[ServiceUnavailable("away")] * 1000), for_seconds=0)


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [backoff_seconds(failures, first=5.0, longest=60.0) for failures in (1, 2, 3, 4, 5, 1000)]
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_a_pause_is_spread_by_half() -> None:
    spread = [jittered(10.0) for _ in range(1000)]
    assert 5.0 <= min(spread) < 7.0
    assert 13.0 < max(spread) <= 15.0
