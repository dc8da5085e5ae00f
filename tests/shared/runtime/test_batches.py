"""A sweep ends when nothing is left, or when its time is over."""

from shared.runtime.batches import budget, drain, is_over, must_stop


def test_a_sweep_goes_on_until_a_batch_is_short() -> None:
    left = [10, 10, 3, 10]
    assert drain(lambda: left.pop(0), size=10) == 23
    assert left == [10]


def test_sweep_over_budget_ends_after_its_batch_as_truncated() -> None:
    left = [10, 10, 10]
    with budget(0) as given:
        assert drain(lambda: left.pop(0), size=10) == 10
        assert given.is_truncated
        assert must_stop()
    assert left == [10, 10]
    assert not is_over()


def test_a_sweep_that_ends_in_time_was_not_cut_short() -> None:
    with budget(600) as given:
        drain(lambda: 0, size=1)
        assert not must_stop()
    assert not given.is_truncated


def test_all_drains_of_a_sweep_share_its_time() -> None:
    with budget(0) as given:
        assert drain(lambda: 5, size=10) == 5
        assert not given.is_truncated
        assert drain(lambda: 10, size=10) == 10
    assert given.is_truncated
