"""Interface of all pools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Executor
from typing import Any


class LostError(Exception):
    """Loss of a task's worker before the task was done. The text tells how the worker ended."""


class Pool(Executor, ABC):
    """Executor whose tasks can be lost with the worker that runs them.

    Attributes
    ----------
    count : int
        Number of tasks that run at a time.
    local : bool
        Whether the tasks run on this machine, and see its files.
    """

    count: int
    local: bool

    @abstractmethod
    def share(self, value: Any) -> Any:
        """Return a reference to ``value`` for the arguments of many tasks; each worker receives the value once."""

    @abstractmethod
    def stop(self) -> None:
        """End all running tasks, and begin no others."""
