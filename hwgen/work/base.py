"""Base class of the pools that run parallel tasks, and the error of a task that is lost with its worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Executor
from typing import Any


class LostError(Exception):
    """Error of a task whose worker ended before the task was done, with a text on how the worker ended."""


class TaskPool(Executor, ABC):
    """Base class of executors of parallel tasks, in which a task that is lost with its worker raises `LostError`.

    Attributes
    ----------
    count : int
        Number of tasks that run at the same time.
    local : bool
        Whether the tasks run on this machine and can read its files.
    """

    count: int
    local: bool

    @abstractmethod
    def share(self, value: Any) -> Any:
        """Return a reference to ``value``, to be passed to tasks in its place, so that a worker receives it once."""

    @abstractmethod
    def stop(self) -> None:
        """End all running tasks of the pool, and start no further ones."""
