"""Interface of the pools that run parallel tasks, and the error of a lost worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Executor
from typing import Any


class LostError(Exception):
    """Error of a task whose worker ended before the task was done. The text tells how the worker ended."""


class Pool(Executor, ABC):
    """Executor of parallel tasks. A task can be lost with its worker, and then fails with `LostError`.

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
        """Return a reference to ``value``, to be passed to many tasks; each worker receives the value once."""

    @abstractmethod
    def stop(self) -> None:
        """End all running tasks, and start no further tasks."""
