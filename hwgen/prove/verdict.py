"""Verdict of one method on one obligation, and the deadline until which methods try."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["RESULTS", "Deadline", "Verdict"]

#: Results of a proof: ``proved``; ``refuted``, with a run that shows it; ``vacuous``, if no run reaches the cover; and
#: ``undecided``.
RESULTS = ("proved", "refuted", "vacuous", "undecided")


@dataclass(frozen=True)
class Verdict:
    """Result of one method on one obligation.

    Parameters
    ----------
    result : str
        One of `RESULTS`.
    engine : str
        Name of the program that decided, with its algorithm.
    detail : str
        Reason in words, if the property is not proved.
    is_covered : bool
        Whether a run reaches the obligation's cover, or the method needs none.
    files : mapping of str to bytes
        Files that show a refutation, by name.
    """

    result: str
    engine: str
    detail: str = ""
    is_covered: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Deadline:
    """Time at which an obligation's methods stop, with their programs and the search of its cover.

    Parameters
    ----------
    end : float
        Time of ``time.monotonic``, in seconds.
    """

    end: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline that is ``seconds`` from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds that are left, 0 after the deadline."""
        return max(0.0, self.end - time.monotonic())

    @property
    def processor_end(self) -> float:
        """End of a computation of this thread that begins now, a time of ``time.thread_time``.

        The computation has as many seconds of the processor as are left, whatever else the machine does.
        """
        return time.thread_time() + self.left

    def part(self, count: int) -> Deadline:
        """Return the deadline of the first of ``count`` methods, which share the time that is left equally."""
        return Deadline.after(self.left / count)
