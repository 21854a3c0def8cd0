"""Choice of a pool for parallel tasks, and the loop that runs tasks in a pool."""

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
from hwgen.work.base import LostError, TaskPool

T = TypeVar("T")

SHARES = 2
"""Number of parts into which divisible work is cut for each task that a cluster runs at a time."""

MAX_LOSSES = 3
"""Number of times that a task can be lost with its worker; then the whole work fails."""


def cores() -> int:
    """Return the number of processor cores that this process can use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_count(count: int | None, what: str = "jobs") -> None:
    """Refuse a count that is not a positive integer; ``None``, a missing option, is accepted.

    Raises
    ------
    InputError
        If the count is not a positive integer.
    """
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InputError(f"{what} must be a positive integer, not {count!r}")


@contextmanager
def pool(cluster: str | None = None, count: int | None = None, *, programs: bool = False) -> Iterator[TaskPool]:
    """Open a pool of workers, on this machine or on a cluster, for the tasks of the ``with`` block.

    Parameters
    ----------
    cluster : str, optional
        Address of a Dask scheduler (``tcp://host:8786``), or ``local:N``, which starts a cluster with N workers on this
        machine. By default the tasks run on this machine, in processes.
    count : int, optional
        Number of parallel tasks on this machine; the number of cores by default. A cluster has its own number.
    programs : bool
        Whether the tasks only wait for external programs. On this machine they then run in threads.

    Raises
    ------
    InputError
        If ``count`` is no positive integer, or ``cluster`` is no address.
    ToolError
        If no cluster answers, or its workers can't run this hwgen.
    """
    check_count(count, "tasks at a time")
    if cluster is not None:
        from hwgen.work.cluster import connected

        with connected(cluster) as cluster_pool:
            yield cluster_pool
        return
    from hwgen.work.local import InProcesses, InThreads

    local_pool = (InThreads if programs else InProcesses)(count or cores())
    try:
        yield local_pool
    except BaseException:
        local_pool.stop()
        raise
    finally:
        local_pool.shutdown()


def run(
    pool: TaskPool | None,
    function: Callable[..., T],
    tasks: Sequence[Any],
    *,
    shared: Sequence[Any] = (),
    what: str = "",
    unit: str = "task",
    done: Callable[[int, Any], None] = lambda index, result: None,
    ended: Callable[[], None] = lambda: None,
) -> list[T]:
    """Run ``function(*shared, task)`` for each task in a pool, and return the results in the order of the tasks.

    Parameters
    ----------
    pool : TaskPool or None
        Pool that runs the tasks; ``None`` runs them here, one after the other.
    function : callable
        Function of a module, so that a worker can import it.
    tasks : sequence
        Last argument of each call.
    shared : sequence
        First arguments of all calls.
    what, unit : str
        Description of the work and of one task, for `hwgen.progress`; without ``what`` no progress is reported.
    done : callable, optional
        Function that is called with the index and the result of each task, as soon as it is done.
    ended : callable, optional
        Function that is called if an exception ends the work, before the running tasks are ended.

    Raises
    ------
    ToolError
        If a task is lost `MAX_LOSSES` times with its worker.
    Exception
        Any exception of a task; the other tasks are then ended.
    """
    results: dict[int, T] = {}

    def have(index: int, result: T) -> None:
        results[index] = result
        done(index, result)
        if what:
            tell(what, len(results), len(tasks), unit)

    if what:
        tell(what, 0, len(tasks), unit)
    try:
        if pool is None:
            for index, task in enumerate(tasks):
                have(index, function(*shared, task))
        else:
            _led_through(pool, function, tasks, shared, have)
    except BaseException:
        try:
            ended()
        finally:
            if pool is not None:
                pool.stop()
        raise
    return [results[index] for index in range(len(tasks))]


def _led_through(
    pool: TaskPool,
    function: Callable[..., T],
    tasks: Sequence[Any],
    shared: Sequence[Any],
    have: Callable[[int, T], None],
) -> None:
    """Run tasks in a pool, repeat lost tasks, and call ``have`` with the index and the result of each task."""
    sent = [pool.share(value) for value in shared]
    running: dict[Future[T], int] = {}
    ended: SimpleQueue[Future[T]] = SimpleQueue()  # it is too slow to check all running tasks each time that one ends
    losses = Counter[int]()

    def begin(index: int) -> None:
        future = pool.submit(function, *sent, tasks[index])
        running[future] = index
        future.add_done_callback(ended.put)

    for index in range(len(tasks)):
        begin(index)
    while running:
        future = ended.get()
        index = running.pop(future)
        try:
            result = future.result()
        except LostError as error:
            losses[index] += 1
            if losses[index] == MAX_LOSSES:
                raise ToolError(f"a task was lost {MAX_LOSSES} times with its worker: {error}") from error
            begin(index)
        else:
            have(index, result)
