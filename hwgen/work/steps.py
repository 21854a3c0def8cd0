"""Parallel execution of a search's steps, which starts only if the search takes long.

The caller of a search chooses the pool with `beside`, and the search runs its steps with `spread`. Most searches end
within a second, before another process could start. Therefore the first steps run in the calling process::

    with work.beside(cluster):
        plan = planner.make(network, board)  # inside: results = work.spread(best_of, layers)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from hwgen.errors import InputError
from hwgen.progress import tell
from hwgen.work.base import TaskPool
from hwgen.work.cluster import check_address
from hwgen.work.pool import check_count, cores, pool, run

T = TypeVar("T")

ALONE = 1.0
"""Seconds that a search's steps may take in the calling process before further steps run in a pool."""


class _DeferredPool:
    """Pool for a search's steps that opens (starts workers) only when the first steps run in it."""

    def __init__(self, cluster: str | None, count: int) -> None:
        self._cluster, self._count = cluster, count
        self._stack = ExitStack()
        self._pool: TaskPool | None = None
        self.left = ALONE
        """Remaining seconds that steps may take in the calling process before further steps run in the pool."""

    def is_due(self, spent: float) -> bool:
        """Return whether further steps should run in the pool, after ``spent`` seconds in the calling process."""
        return (self._cluster is not None or self._count > 1) and spent >= self.left

    def run(
        self,
        function: Callable[..., T],
        tasks: Sequence[Any],
        shared: Sequence[Any],
        report_left: Callable[[int], None],
    ) -> list[T]:
        """Return a list of the tasks' results, run in the pool; ``report_left`` gets the number of tasks left."""
        left = itertools.count(len(tasks) - 1, -1)
        try:
            if self._pool is None:
                self._pool = self._stack.enter_context(pool(self._cluster, self._count))
            return run(self._pool, function, tasks, shared=shared, done=lambda index, result: report_left(next(left)))
        except BaseException as error:
            self.close(error)
            raise

    def close(self, error: BaseException | None = None) -> None:
        """Close the pool if it is open; ``error`` is the error that ended the work, if any.

        A later step opens another pool. The pool can replace the error, as a cluster does for a lost scheduler.
        """
        self._pool, stack, self._stack = None, self._stack, ExitStack()
        stack.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)


_POOL: ContextVar[_DeferredPool | None] = ContextVar("place", default=None)


@contextmanager
def beside(cluster: str | None = None, count: int | None = None) -> Iterator[None]:
    """Context manager for searches that run their steps in parallel, in an outer block's pool if there is one.

    Parameters
    ----------
    cluster, count
        Parameters of `hwgen.work.pool`.

    Raises
    ------
    InputError
        If ``count`` is not a positive integer, or ``cluster`` is not an address, or both are given.
    """
    check_count(count)
    if cluster is not None:
        if count is not None:
            raise InputError("jobs applies to this machine only, not to a cluster: leave jobs or cluster out")
        check_address(cluster)
    if _POOL.get() is not None:
        yield
        return
    deferred_pool = _DeferredPool(cluster, count or cores())
    token = _POOL.set(deferred_pool)
    try:
        yield
    except BaseException as error:
        deferred_pool.close(error)
        raise
    else:
        deferred_pool.close()
    finally:
        _POOL.reset(token)


def spread(
    function: Callable[..., T], tasks: Sequence[Any], *, shared: Sequence[Any] = (), what: str = "", unit: str = "task"
) -> list[T]:
    """Return a list of ``function(*shared, task)`` results in order, run here first, then in a pool if slow.

    The pool is opened by `beside`.

    Parameters and errors are the same as of `hwgen.work.run`. The first tasks run in the calling process; if they take
    long, the others run in the pool of `beside`.
    """
    results: list[T] = []
    deferred_pool, begin = _POOL.get(), time.monotonic()
    for index, task in enumerate(tasks):
        if deferred_pool is not None and len(tasks) - index > 1 and deferred_pool.is_due(time.monotonic() - begin):
            break
        _report_step(what, unit, len(tasks), len(tasks) - index)
        results.append(function(*shared, task))
    if deferred_pool is not None:
        deferred_pool.left -= time.monotonic() - begin
    if deferred_pool is not None and len(results) < len(tasks):
        report_left = partial(_report_step, what, unit, len(tasks))
        report_left(len(tasks) - len(results))
        results += deferred_pool.run(function, tasks[len(results) :], shared, report_left)
    return results


def _report_step(what: str, unit: str, total: int, left: int) -> None:
    if what:
        tell(what, total - left, total, unit)
