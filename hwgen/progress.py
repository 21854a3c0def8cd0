"""Telling how far work has come.

What takes long tells its steps by `tell`. Who wants to hear of them says so around the work: by `told` with a function
of their own, or by `shown`, which writes to stderr. There a terminal gets a line for each step at once, and a bar with
an estimate after a second; a file or a pipe gets a line now and then::

    with hwgen.progress.told(print):
        design = model.plan("zedboard")
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwgen import printable

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = [
    "PAUSE",
    "Lines",
    "Listener",
    "Shown",
    "Step",
    "followed",
    "listener",
    "on_terminal",
    "shown",
    "tell",
    "told",
]

PAUSE = 10.0
"""Seconds between lines, and before the first, where stderr is no terminal."""

DELAY = 1.0
"""Seconds that a step must have taken before a bar is shown."""


@dataclass(frozen=True)
class Step:
    """How far one step of the work has come.

    Attributes
    ----------
    what : str
        What is being done, and of which network: ``digits: compiling the simulator``.
    done : int
    total : int or None
        Of how many ``unit``; ``None`` if that is not known.
    unit : str
    """

    what: str
    done: int = 0
    total: int | None = None
    unit: str = ""

    def __str__(self) -> str:
        if not self.total:
            return self.what
        return f"{self.what}: {self.done:,} of {self.total:,} {self.unit}s ({self.done / self.total:.0%})"


Listener = Callable[[Step], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def tell(what: str, done: int = 0, total: int | None = None, unit: str = "") -> None:
    """Tell whoever listens."""
    if (found := _listener.get()) is not None:
        found(Step(what, done, total, unit))


def listener() -> Listener:
    """Who listens now, for other threads, which don't know by themselves."""
    return _listener.get() or (lambda step: None)


@contextmanager
def told(listener: Listener) -> Iterator[None]:
    """Call a function with every `Step` of what is done in the block, in whatever thread that happens."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def shown() -> Iterator[None]:
    """Show the steps of what is done in the block on stderr."""
    here = Shown()
    try:
        with told(here):
            yield
    finally:
        here.close()


@contextmanager
def followed(asked: bool | Listener) -> Iterator[None]:
    """`told` of a function, or `shown` for True unless somebody listens already."""
    if callable(asked):
        with told(asked):
            yield
    elif asked and _listener.get() is None:
        with shown():
            yield
    else:
        yield


def on_terminal() -> bool:
    """Whether somebody watches stderr."""
    return sys.stderr is not None and sys.stderr.isatty()


class Lines:
    """Lines about one piece of work; where stderr is no terminal at most one every ``PAUSE`` seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        now = time.monotonic()
        if on_terminal() or (sys.stderr is not None and now - self._last >= PAUSE):
            self._last = now
            print(printable.line(text), file=sys.stderr, flush=True)


class Shown:
    """A listener that writes to stderr."""

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
                self._end()
                self._what = step.what
                self._lines.say(step.what)
            if step.total:
                self._move(step)

    def _move(self, step: Step) -> None:
        if self._bar is not None and (step.total != self._bar.total or step.done < self._bar.n):
            self._end()  # the same kind of step, once more
        if self._bar is None:  # only now: what came before would spoil the rate
            from tqdm import tqdm  # when there is work to show: `hwgen boards` needs no such thing

            self._bar = tqdm(
                desc=printable.line(step.what),
                file=getattr(sys.stderr, "raw", None),  # the bar itself moves the cursor
                total=step.total,
                initial=step.done,
                unit=step.unit or "it",
                unit_scale=True,
                delay=DELAY,
                leave=False,
                dynamic_ncols=True,
            )
        self._bar.update(step.done - self._bar.n)

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def close(self) -> None:
        """Take the bar away."""
        with self._lock:
            self._end()
