"""Work on frames in parallel threads, in order, with a few of them in memory.

PyAV, OpenCV and NumPy let go of the interpreter while they work, so that threads share the
machine. The frames come from an iterator, a video being decoded for example: the threads take
turns at it, each decoding what it then works on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], *, num_threads: int = 1
) -> Iterator[Result]:
    """``function`` of every item, in the items' order.

    At most ``num_threads`` + 1 items or results exist beside the one that was yielded last. An
    error of the function or of the items is raised where its result would have come. Leaving the
    iterator early stops the work.

    Args:
        function: Called from several threads at once; one that lets go of the interpreter.
        items: Advanced by one thread at a time.
        num_threads: One does the work in the caller's own thread.
    """
    if num_threads <= 1:
        yield from map(function, items)
        return
    source, lock = iter(items), Lock()
    results: deque[Future[Result]] = deque()
    waiting: deque[Future[Result]] = deque()

    def work() -> None:
        # Whoever holds the lock takes the next item and the next place together.
        with lock:
            result = waiting.popleft()
            try:
                item = next(source)
            except BaseException as error:  # raised to the caller, where its result would come
                result.set_exception(
                    _NoMoreItemsError() if isinstance(error, StopIteration) else error
                )
                return
        try:
            result.set_result(function(item))
        except BaseException as error:
            result.set_exception(error)

    with ThreadPoolExecutor(num_threads, thread_name_prefix="frames") as threads:
        try:
            while True:
                while len(results) <= num_threads:
                    place: Future[Result] = Future()
                    results.append(place)
                    waiting.append(place)
                    threads.submit(work)
                try:
                    yield results.popleft().result()
                except _NoMoreItemsError:
                    return
        finally:
            threads.shutdown(cancel_futures=True)


class _NoMoreItemsError(Exception):
    """The items are used up."""
