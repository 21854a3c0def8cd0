"""Verdict of one proof method on one obligation, and the deadline until which methods try."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Results of a proof: ``proved``; ``refuted``, with a run that shows it; ``vacuous``, if no run reaches the cover; and
#: ``undecided``.
RESULTS = ("proved", "refuted", "vacuous", "undecided")


@dataclass(frozen=True)
class Verdict:
    """Verdict of one proof method on one obligation: result (proved, refuted ..), reason, and files that show it.

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
    """Time when an obligation's proof methods must stop, their programs and the search for its cover included.

    Parameters
    ----------
    end : float
        Time of ``time.monotonic``, in seconds.
    """

    end: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the `Deadline` that is ``seconds`` from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Number of seconds (float) until the deadline; 0 once it has passed."""
        return max(0.0, self.end - time.monotonic())

    @property
    def processor_end(self) -> float:
        """Latest end of a computation that this thread starts now, in CPU seconds as ``time.thread_time`` counts.

        The computation may take as many CPU seconds as are left until the deadline, whatever else the machine does.
        """
        return time.thread_time() + self.left

    def part(self, count: int) -> Deadline:
        """Return the `Deadline` of the first of ``count`` methods that share the remaining time equally."""
        return Deadline.after(self.left / count)
