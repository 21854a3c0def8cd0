"""Progress of long work, reported as steps to a listener.

Long work reports its steps with `tell`. Around the work, a caller chooses the listener: `told` calls a function of the
caller, and `shown` writes to stderr. A terminal gets a line for each step at once, and a bar with an estimate after a
second. A file or a pipe gets a line every `PAUSE` seconds, or as often as the environment variable `VARIABLE` says::

    with hwgen.progress.told(print):
        design = model.plan("zedboard")
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwgen import printable
from hwgen.errors import InputError

if TYPE_CHECKING:
    from tqdm import tqdm

PAUSE = 10.0
"""Seconds before the first line of progress, and between two lines, if stderr is not a terminal."""

VARIABLE = "HWGEN_PROGRESS"
"""Name of the environment variable that overrides `PAUSE` (seconds between progress lines); ``off`` prints none."""

STEP_SHARE = 0.5
"""Share of the remaining progress (0 to 1) that `in_one` gives to each new step, as it can't know how many follow."""

SHARES = 100
"""Total of a progress step that counts shares of its work (percent) instead of units."""

DELAY = 1.0
"""Seconds that a step must take before its progress bar appears on a terminal."""


@dataclass(frozen=True)
class Step:
    """Progress report of one step of long work: its description, and how many of its units are finished.

    Attributes
    ----------
    what : str
        Description of the step, with the name of the network: ``digits: compiling the simulator``.
    done : int
        Number of finished units.
    total : int or None
        Total number of units; ``None`` if unknown.
    unit : str
        Name of one unit, such as ``frame``; empty if the numbers are shares.
    """

    what: str
    done: int = 0
    total: int | None = None
    unit: str = ""

    def __str__(self) -> str:
        if not self.total:
            return self.what
        if not self.unit:
            return f"{self.what}: {self.done / self.total:.0%}"
        return f"{self.what}: {self.done:,} of {self.total:,} {self.unit}s ({self.done / self.total:.0%})"


Listener = Callable[[Step], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def tell(what: str, done: int = 0, total: int | None = None, unit: str = "") -> None:
    """Report a `Step` of progress to the current listener, if there is one."""
    if (receiver := _listener.get()) is not None:
        receiver(Step(what, done, total, unit))


def listener() -> Listener:
    """Return the current progress listener, or one that does nothing, to pass it to threads, which don't inherit it."""
    return _listener.get() or (lambda step: None)


@contextmanager
def told(listener: Listener) -> Iterator[None]:
    """Context manager that calls the function ``listener`` with every progress `Step` reported in its block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def in_one(what: str) -> Iterator[None]:
    """Context manager that reports all progress of its block as one step ``what`` that never goes back.

    How many steps follow is unknown. Each one that begins takes `STEP_SHARE` of what is left to do.
    """
    receiver = _listener.get()
    if receiver is None:
        yield
        return
    receiver(Step(what))
    with told(_Joined(what, receiver)):
        yield


class _Joined:
    """Listener that reports several consecutive progress steps as one step, whose share done never decreases."""

    def __init__(self, what: str, receiver: Listener) -> None:
        self._what, self._receiver = what, receiver
        self._step: Step | None = None
        self._begin, self._done = 0.0, 0.0

    def __call__(self, step: Step) -> None:
        if not step.total:
            return
        last = self._step
        if last is None or (step.what, step.total) != (last.what, last.total) or step.done < last.done:
            self._begin = self._done
        self._step = step
        self._done = self._begin + (1 - self._begin) * STEP_SHARE * step.done / step.total
        self._receiver(Step(self._what, int(SHARES * self._done), SHARES))


@contextmanager
def shown() -> Iterator[None]:
    """Context manager that shows on stderr, as lines or as a bar, the progress reported in its block."""
    here = Shown()
    try:
        with told(here):
            yield
    finally:
        here.close()


@contextmanager
def followed(progress: bool | Listener) -> Iterator[None]:
    """Context manager that reports its block's progress to the function ``progress``; ``True`` shows it on stderr.

    It is not shown if another listener is set.
    """
    if callable(progress):
        with told(progress):
            yield
    elif progress and _listener.get() is None:
        with shown():
            yield
    else:
        yield


def on_terminal() -> bool:
    """Return whether stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def _line_interval() -> float:
    """Return the seconds between progress lines off a terminal: environment variable `VARIABLE`, or `PAUSE`."""
    text = os.environ.get(VARIABLE) or str(PAUSE)
    if text == "off":
        return math.inf
    with suppress(ValueError):
        if (seconds := float(text)) >= 0:
            return seconds
    raise InputError(f"the environment variable {VARIABLE} must be a number of seconds or off, not {text!r}")


class Lines:
    """Printer of progress lines on stderr: if it is not a terminal, at most one line every `_line_interval` seconds."""

    def __init__(self) -> None:
        self._last, self._pause = time.monotonic(), _line_interval()

    def say(self, text: str) -> None:
        """Print a progress line on stderr; skip it if stderr is not a terminal and the last line is too recent."""
        now = time.monotonic()
        if on_terminal() or (sys.stderr is not None and now - self._last >= self._pause):
            self._last = now
            print(printable.line(text), file=sys.stderr, flush=True)


class Shown:
    """Listener that shows progress steps on stderr: as lines, and on a terminal also as a progress bar."""

    def __init__(self) -> None:
        self._lines, self._lock = Lines(), threading.Lock()
        self._what: str | None = None
        self._bar: tqdm | None = None

    def __call__(self, step: Step) -> None:
        with self._lock:
            if not on_terminal():
                self._lines.say(str(step))
                return
            if step.what != self._what:
                self._close_bar()
                self._what = step.what
                self._lines.say(step.what)
            if step.total:
                self._move_bar(step)

    def _move_bar(self, step: Step) -> None:
        if self._bar is not None and (step.total != self._bar.total or step.done < self._bar.n):
            self._close_bar()  # the same kind of step begins again
        if self._bar is None:  # not earlier, because earlier steps would spoil the rate
            from tqdm import tqdm  # only when there is work to show: `hwgen boards` does not need it

            self._bar = tqdm(
                desc=printable.line(step.what),
                file=getattr(sys.stderr, "raw", None),  # the raw stream, because the bar moves the cursor
                total=step.total,
                initial=step.done,
                unit=step.unit or "%",
                unit_scale=bool(step.unit),
                delay=DELAY,
                leave=False,
                dynamic_ncols=True,
            )
        self._bar.update(step.done - self._bar.n)

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def close(self) -> None:
        """Remove the progress bar from the terminal, if there is one."""
        with self._lock:
            self._close_bar()
