"""Base class of pools that run parallel tasks, and the picklable outcome of a task (result or error)."""

from __future__ import annotations

import pickle
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from hwgen.errors import HwgenError


class LostError(Exception):
    """Error of a task whose worker process ended before the task was done; its text says how the worker ended."""


class TaskPool(Executor, ABC):
    """Base class of pools that run parallel tasks; a task that is lost with its worker raises `LostError`.

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
        """Return a reference that tasks receive in place of ``value``, so that a worker receives it only once."""

    @abstractmethod
    def stop(self) -> None:
        """End all running tasks of the pool, and start no further tasks."""


@dataclass(frozen=True)
class Outcome:
    """Picklable outcome of a task: its result, or the error that it raised."""

    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """Return the task's result, or raise its error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value


def outcome(function: Callable[..., Any], *arguments: Any, **named: Any) -> Outcome:
    """Call ``function(*arguments, **named)``, and return its result or its error as an `Outcome`."""
    try:
        return Outcome(value=function(*arguments, **named))
    except Exception as error:
        return Outcome(error=_portable(error))


def _portable(error: Exception) -> Exception:
    """Return an error itself if it can be pickled, else an error of a base class with the same text.

    An unexpected error carries its traceback as a note.
    """
    if not isinstance(error, HwgenError):
        error.add_note("in a worker:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        classes = [
            error_class
            for error_class in type(error).__mro__[1:]
            if error_class.__module__ in ("builtins", HwgenError.__module__)
        ]
        for error_class in classes:  # takes the first class whose only argument is a text
            try:
                plain = error_class("\n  ".join(error.lines) if isinstance(error, HwgenError) else str(error))
                pickle.loads(pickle.dumps(plain))
            except Exception:
                continue
            return plain
    return error
