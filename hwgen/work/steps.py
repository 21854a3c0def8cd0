"""Searches whose steps may go side by side: whoever begins one says where, and steps go there once it takes long.

Most searches end within a second, in which no other process would have begun. So the first steps are done here::

    with work.beside(cluster):
        plan = planner.make(network, board)  # somewhere in it: found = work.spread(best_of, layers)
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
from hwgen.work.base import Pool
from hwgen.work.cluster import check_address
from hwgen.work.pool import check_count, cores, pool, run

T = TypeVar("T")

ALONE = 1.0
"""Seconds of a search that are spent here before other processes begin."""


class _Place:
    """Where steps go, opened with the first of them."""

    def __init__(self, cluster: str | None, count: int) -> None:
        self._cluster, self._count = cluster, count
        self._stack = ExitStack()
        self._pool: Pool | None = None
        self.left = ALONE
        """Seconds until it is opened."""

    def is_due(self, spent: float) -> bool:
        """Whether steps shall go there, after so many seconds of more steps here."""
        return (self._cluster is not None or self._count > 1) and spent >= self.left

    def run(
        self, function: Callable[..., T], tasks: Sequence[Any], shared: Sequence[Any], said: Callable[[int], None]
    ) -> list[T]:
        """`run`, there; ``said`` is told how many tasks are left."""
        left = itertools.count(len(tasks) - 1, -1)
        try:
            if self._pool is None:
                self._pool = self._stack.enter_context(pool(self._cluster, self._count))
            return run(self._pool, function, tasks, shared=shared, done=lambda number, result: said(next(left)))
        except BaseException as error:
            self.close(error)
            raise

    def close(self, error: BaseException | None = None) -> None:
        """Leave the pool, by the error if there is one, which it may say in other words; a step more opens another."""
        self._pool, stack, self._stack = None, self._stack, ExitStack()
        stack.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)


_PLACE: ContextVar[_Place | None] = ContextVar("place", default=None)


@contextmanager
def beside(cluster: str | None = None, count: int | None = None) -> Iterator[None]:
    """Let what is searched in the block go side by side (`spread`); in a block inside another one, as that one says.

    Parameters
    ----------
    cluster, count
        As of `hwgen.work.pool`.

    Raises
    ------
    InputError
        If ``count`` is no positive integer, or ``cluster`` is no address, or both are given.
    """
    check_count(count)
    if cluster is not None:
        if count is not None:
            raise InputError("jobs is of this machine, and a cluster knows how much it does at a time: leave one out")
        check_address(cluster)
    if _PLACE.get() is not None:
        yield
        return
    place = _Place(cluster, count or cores())
    token = _PLACE.set(place)
    try:
        yield
    except BaseException as error:
        place.close(error)
        raise
    else:
        place.close()
    finally:
        _PLACE.reset(token)


def spread(
    function: Callable[..., T], tasks: Sequence[Any], *, shared: Sequence[Any] = (), what: str = "", unit: str = "task"
) -> list[T]:
    """What ``function(*shared, task)`` returns for each task, in the tasks' order.

    Parameters and errors are those of `hwgen.work.run`. Tasks run here, or where `beside` says if they take long.
    """
    results: list[T] = []
    place, begin = _PLACE.get(), time.monotonic()
    for number, task in enumerate(tasks):
        if place is not None and len(tasks) - number > 1 and place.is_due(time.monotonic() - begin):
            break
        _tell(what, unit, len(tasks), len(tasks) - number)
        results.append(function(*shared, task))
    if place is not None:
        place.left -= time.monotonic() - begin
    if place is not None and len(results) < len(tasks):
        said = partial(_tell, what, unit, len(tasks))
        said(len(tasks) - len(results))
        results += place.run(function, tasks[len(results) :], shared, said)
    return results


def _tell(what: str, unit: str, total: int, left: int) -> None:
    if what:
        tell(what, total - left, total, unit)
