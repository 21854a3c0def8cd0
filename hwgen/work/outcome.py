"""What became of a task, in a form that travels."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hwgen.errors import HwgenError


@dataclass(frozen=True)
class Outcome:
    """What a task returned, or raised."""

    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """The value; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value


def outcome(function: Callable[..., Any], *arguments: Any, **named: Any) -> Outcome:
    """Run a task."""
    try:
        return Outcome(value=function(*arguments, **named))
    except Exception as error:
        return Outcome(error=_portable(error))


def _portable(error: Exception) -> Exception:
    """The error itself if it can be sent, else one of a base class with its text.

    A fault of ours has its traceback as a note.
    """
    if not isinstance(error, HwgenError):
        error.add_note("in a worker:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        kinds = [kind for kind in type(error).__mro__[1:] if kind.__module__ in ("builtins", HwgenError.__module__)]
        for kind in kinds:  # one that takes a text alone
            try:
                plain = kind("\n  ".join(error.lines) if isinstance(error, HwgenError) else str(error))
                pickle.loads(pickle.dumps(plain))
            except Exception:
                continue
            return plain
    return error
