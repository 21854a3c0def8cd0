"""Deadline of an obligation, which its methods, their programs and the search of its cover share."""

from __future__ import annotations

import time
from dataclasses import dataclass

__all__ = ["Deadline"]


@dataclass(frozen=True)
class Deadline:
    """Time at which an obligation's methods stop, whatever they have decided.

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
