"""What all pools have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Executor
from typing import Any


class LostError(Exception):
    """The worker of a task ended before it; the text says how."""


class Pool(Executor, ABC):
    """An executor whose tasks may be lost with the worker that runs them.

    Attributes
    ----------
    count : int
        Tasks that run at a time.
    local : bool
        Whether they run on this machine, and see its files.
    """

    count: int
    local: bool

    @abstractmethod
    def share(self, value: Any) -> Any:
        """What stands for ``value`` among the arguments of many tasks: it is sent to each worker once."""

    @abstractmethod
    def stop(self) -> None:
        """End what runs, and begin nothing more."""
