"""Who is given a thread next, without any thread."""

from hypothesis import given
from hypothesis import strategies as st

from web.server.ready_queue import ReadyQueue


def test_a_burst_of_one_credential_takes_its_part_and_the_rest_follows_in_order() -> None:
    turns = ReadyQueue(each=2, max_wait_seconds=5)
    assert [turns.may_begin(b"mine", number, 0.0) for number in range(4)] == [True, True, False, False]
    assert turns.may_begin(b"other", 9, 0.0)
    assert [turns.end(b"mine", 1.0) for _ in range(4)] == [2, 3, None, None]
    assert turns.may_begin(b"mine", 5, 0.0)


def test_requests_without_a_credential_wait_for_nobody() -> None:
    turns = ReadyQueue(each=1, max_wait_seconds=5)
    assert all(turns.may_begin(None, number, 0.0) for number in range(10))
    assert turns.end(None, 0.0) is None


def test_what_has_waited_for_long_begins_all_the_same() -> None:
    turns = ReadyQueue(each=1, max_wait_seconds=5)
    assert [turns.may_begin(b"mine", number, float(number)) for number in range(3)] == [True, False, False]
    assert turns.find_overdue(6.5, room=0) == []
    assert turns.find_overdue(6.5, room=5) == [1]
    assert turns.end(b"mine", 6.5) is None, "one more than its part was running"
    assert turns.end(b"mine", 6.5) == 2


def test_what_has_waited_for_long_is_done_by_a_few_threads() -> None:
    turns = ReadyQueue(each=4, max_wait_seconds=5)
    assert [turns.may_begin(b"mine", number, 0.0) for number in range(8)] == [True] * 4 + [False] * 4
    assert [turns.end(b"mine", 6.0) for _ in range(4)] == [None, None, 4, 5]
    assert [turns.end(b"mine", 6.0) for _ in range(4)] == [6, 7, None, None]
    assert turns.may_begin(b"mine", 8, 6.0)


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", None]), st.booleans()), max_size=60))
def test_every_request_begins_once_and_nothing_is_kept_of_it(steps: list[tuple[bytes | None, bool]]) -> None:
    turns, running, begun, waiting = ReadyQueue(each=2, max_wait_seconds=5), [], set(), set()
    for number, (sender, ends) in enumerate(steps):
        if turns.may_begin(sender, (sender, number), float(number)):
            running.append((sender, number))
        else:
            waiting.add((sender, number))
        if ends and running:
            begun.add(running[0])
            if (following := turns.end(running.pop(0)[0], float(number))) is not None:
                running.append(following)
    while running:
        begun.add(running[0])
        if (following := turns.end(running.pop(0)[0], 100.0)) is not None:
            running.append(following)
    assert len(begun) == len(steps)
    assert not turns._senders
