"""Where tasks run, and how many of them are led through one pool."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

from hwgen.errors import InputError, ToolError
from hwgen.progress import tell
from hwgen.work.base import LostError, Pool

T = TypeVar("T")

SHARES = 2
"""Tasks that work without natural parts is cut into, for each that a cluster runs at a time."""

MOST_LOSSES = 3
"""How often a task may be lost with its worker."""


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_count(count: int | None, what: str = "jobs") -> None:
    """Refuse what is no number of tasks at a time; ``None`` is one that isn't given.

    Raises
    ------
    InputError
    """
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InputError(f"{what} must be a positive integer, not {count!r}")


@contextmanager
def pool(cluster: str | None = None, count: int | None = None, *, programs: bool = False) -> Iterator[Pool]:
    """Where tasks run, for the block.

    Parameters
    ----------
    cluster : str, optional
        Address of a Dask scheduler (``tcp://host:8786``), or ``local:N``, which starts one with so many workers on
        this machine. Otherwise tasks run here, in processes.
    count : int, optional
        Tasks at a time on this machine; as many as there are processors if not given. A cluster knows itself.
    programs : bool
        The tasks do nothing but wait for programs, which are processes already: on this machine they take no others.

    Raises
    ------
    InputError
        If ``count`` is no positive integer, or ``cluster`` is no address.
    ToolError
        If there is no such cluster, or its workers can't do this work.
    """
    check_count(count, "tasks at a time")
    if cluster is not None:
        from hwgen.work.cluster import connected

        with connected(cluster) as found:
            yield found
        return
    from hwgen.work.local import InProcesses, InThreads

    made = (InThreads if programs else InProcesses)(count or cores())
    try:
        yield made
    except BaseException:
        made.stop()
        raise
    finally:
        made.shutdown()


def run(
    pool: Pool | None,
    function: Callable[..., T],
    tasks: Sequence[Any],
    *,
    shared: Sequence[Any] = (),
    what: str = "",
    unit: str = "task",
    done: Callable[[int, Any], None] = lambda number, result: None,
) -> list[T]:
    """What ``function(*shared, task)`` returns for each task, in the tasks' order.

    Parameters
    ----------
    pool : Pool or None
        ``None``: the tasks run here, one after the other.
    function : callable
        Of a module, so that a worker finds it.
    tasks : sequence
    shared : sequence
        What all tasks take.
    what, unit : str
        What is done, and what a task is, for `hwgen.progress`; nothing is told without.
    done : callable, optional
        Told the number of each task that is done, as it is, and what it returned.

    Raises
    ------
    ToolError
        If a task is lost again and again.
    Exception
        Whatever a task raises; the others are ended then.
    """
    results: dict[int, T] = {}

    def have(number: int, result: T) -> None:
        results[number] = result
        done(number, result)
        if what:
            tell(what, len(results), len(tasks), unit)

    if what:
        tell(what, 0, len(tasks), unit)
    if pool is None:
        for number, task in enumerate(tasks):
            have(number, function(*shared, task))
    else:
        _led_through(pool, function, tasks, shared, have)
    return [results[number] for number in range(len(tasks))]


def _led_through(
    pool: Pool,
    function: Callable[..., T],
    tasks: Sequence[Any],
    shared: Sequence[Any],
    have: Callable[[int, T], None],
) -> None:
    """Give a pool the tasks, again those that are lost, and take what each returns."""
    sent = [pool.share(value) for value in shared]
    running: dict[Future[T], int] = {}
    ended: SimpleQueue[Future[T]] = SimpleQueue()  # to look at all that run, each time that one ends, takes too long
    losses = Counter[int]()

    def begin(number: int) -> None:
        future = pool.submit(function, *sent, tasks[number])
        running[future] = number
        future.add_done_callback(ended.put)

    try:
        for number in range(len(tasks)):
            begin(number)
        while running:
            future = ended.get()
            number = running.pop(future)
            try:
                result = future.result()
            except LostError as error:
                losses[number] += 1
                if losses[number] == MOST_LOSSES:
                    raise ToolError(f"a task was lost {MOST_LOSSES} times with its worker: {error}") from error
                begin(number)
            else:
                have(number, result)
    except BaseException:
        pool.stop()
        raise
