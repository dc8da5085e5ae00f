"""The order in which requests get a thread, tested without threads."""

from hypothesis import given
from hypothesis import strategies as st

from web.server.ready_queue import ReadyQueue


def test_burst_of_one_credential_takes_its_share_and_queues_the_rest() -> None:
    ready_queue = ReadyQueue(max_per_credential=2, max_wait_seconds=5)
    assert [ready_queue.start_or_queue(b"queue", number, 0.0) for number in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    assert ready_queue.start_or_queue(b"other", 9, 0.0)
    assert [ready_queue.end(b"queue", 1.0) for _ in range(4)] == [2, 3, None, None]
    assert ready_queue.start_or_queue(b"queue", 5, 0.0)


def test_requests_without_a_credential_are_not_queued() -> None:
    ready_queue = ReadyQueue(max_per_credential=1, max_wait_seconds=5)
    assert all(ready_queue.start_or_queue(None, number, 0.0) for number in range(10))
    assert ready_queue.end(None, 0.0) is None


def test_overdue_request_starts_above_the_limit() -> None:
    ready_queue = ReadyQueue(max_per_credential=1, max_wait_seconds=5)
    assert [ready_queue.start_or_queue(b"queue", number, float(number)) for number in range(3)] == [
        True,
        False,
        False,
    ]
    assert ready_queue.find_overdue(6.5, room=0) == []
    assert ready_queue.find_overdue(6.5, room=5) == [1]
    assert ready_queue.end(b"queue", 6.5) is None, "one more than its part was running"
    assert ready_queue.end(b"queue", 6.5) == 2


def test_overdue_requests_use_few_threads() -> None:
    ready_queue = ReadyQueue(max_per_credential=4, max_wait_seconds=5)
    assert [ready_queue.start_or_queue(b"queue", number, 0.0) for number in range(8)] == [True] * 4 + [
        False
    ] * 4
    assert [ready_queue.end(b"queue", 6.0) for _ in range(4)] == [None, None, 4, 5]
    assert [ready_queue.end(b"queue", 6.0) for _ in range(4)] == [6, 7, None, None]
    assert ready_queue.start_or_queue(b"queue", 8, 6.0)


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", None]), st.booleans()), max_size=60))
def test_every_request_starts_once_and_leaves_no_state(steps: list[tuple[bytes | None, bool]]) -> None:
    ready_queue, running, begun, waiting = (
        ReadyQueue(max_per_credential=2, max_wait_seconds=5),
        [],
        set(),
        set(),
    )
    for number, (sender, ends) in enumerate(steps):
        if ready_queue.start_or_queue(sender, (sender, number), float(number)):
            running.append((sender, number))
        else:
            waiting.add((sender, number))
        if ends and running:
            begun.add(running[0])
            if (following := ready_queue.end(running.pop(0)[0], float(number))) is not None:
                running.append(following)
    while running:
        begun.add(running[0])
        if (following := ready_queue.end(running.pop(0)[0], 100.0)) is not None:
            running.append(following)
    assert len(begun) == len(steps)
    assert not ready_queue._senders
