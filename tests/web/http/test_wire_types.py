"""Models are built only when they are first used, and then have the names that clients send."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from web.http.requests import read_query, wire_names
from web.http.wire_types import RequestModel

THREADS = 8


def test_a_shape_is_built_when_it_is_first_read() -> None:
    class Asked(RequestModel):
        page_size: str

    assert not Asked.__pydantic_complete__
    assert read_query("pageSize=3", Asked).page_size == "3"
    assert Asked.__pydantic_complete__


def test_names_of_a_shape_are_those_that_are_sent() -> None:
    class Asked(RequestModel):
        page_size: str

    assert wire_names(Asked) == {"pageSize"}


def test_threads_that_read_a_shape_first_and_at_once_all_read_it() -> None:
    for _ in range(20):

        class Asked(RequestModel):
            page_size: str
            after: str | None = None

        together = Barrier(THREADS)

        def read(number: int, shape: type[Asked] = Asked, together: Barrier = together) -> str:
            together.wait()
            return read_query(f"pageSize={number}", shape).page_size

        with ThreadPoolExecutor(THREADS) as pool:
            assert list(pool.map(read, range(THREADS))) == [str(number) for number in range(THREADS)]
