from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from cosmos_transfer.inputs.parallel import map_in_order


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("num_items", [0, 1, 2, 3, 40])
def test_results_come_in_order(num_threads, num_items):
    def slow_first(item: int) -> int:
        time.sleep(0.002 * (3 - item % 4))
        return item * item

    found = list(map_in_order(slow_first, range(num_items), num_threads=num_threads))
    assert found == [item * item for item in range(num_items)]


def test_two_items_are_worked_on_at_once():
    both = threading.Barrier(2, timeout=10)

    def meet(item: int) -> int:
        both.wait()  # breaks unless a second thread gets here
        return item

    assert list(map_in_order(meet, range(4), num_threads=2)) == [0, 1, 2, 3]


def test_one_thread_is_the_callers_own():
    names = set(map_in_order(lambda _: threading.get_ident(), range(3), num_threads=1))
    assert names == {threading.get_ident()}


@pytest.mark.parametrize("num_threads", [1, 3])
def test_an_error_comes_where_its_result_would(num_threads):
    def fails_at_two(item: int) -> int:
        if item == 2:
            raise ValueError("two")
        return item

    results = map_in_order(fails_at_two, range(9), num_threads=num_threads)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(results)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_an_error_of_the_items_comes_too(num_threads):
    def items() -> Iterator[int]:
        yield 0
        raise OSError("gone")

    results = map_in_order(str, items(), num_threads=num_threads)
    assert next(results) == "0"
    with pytest.raises(OSError, match="gone"):
        next(results)


def test_no_more_is_taken_than_is_being_worked_on():
    taken: list[int] = []

    def items() -> Iterator[int]:
        for index in range(50):
            taken.append(index)
            yield index

    for index in map_in_order(str, items(), num_threads=2):
        time.sleep(0.001)
        assert len(taken) <= int(index) + 1 + 3


def test_leaving_early_stops_the_work():
    before = threading.active_count()
    results = map_in_order(str, range(1000), num_threads=3)
    next(results)
    results.close()
    assert threading.active_count() == before
